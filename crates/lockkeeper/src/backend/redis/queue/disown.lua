-- ARGV: keeper, and ids of claims that it does not have any more, each with a blank behind it. Takes
-- them out of the queue and from the name, and lets the next in. Returns how many there were.
local mark, gone = '\n' .. ARGV[1] .. '\n', {}
for id in string.gmatch(ARGV[2], '%x+') do gone[id] = true end
load()
local removed, kept = #holders, {}
drop(function(holder) return gone[holder.id] and holder.keeper == ARGV[1] end)
removed = removed - #holders
local records = redis.call('LRANGE', KEYS[2], 0, -1)
for _, record in ipairs(records) do
  local id = string.match(record, '^%x+')
  if not (id and gone[id] and string.find(record, mark, 1, true)) then kept[#kept + 1] = record end
end
if #kept < #records then
  -- At once, not one by one: there may be thousands, and each would be looked for from the head.
  redis.call('DEL', KEYS[2])
  for from = 1, #kept, 1000 do
    redis.call('RPUSH', KEYS[2], unpack(kept, from, math.min(from + 999, #kept)))
  end
  if #kept > 0 then redis.call('PEXPIRE', KEYS[2], KEPT) end
end
removed = removed + #records - #kept
if removed > 0 then
  advance()
  store()
end
return removed
