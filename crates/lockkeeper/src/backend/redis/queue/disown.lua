-- Removes claims that nobody has: their keeper found that it does not have them any more, because
-- their task ended with its runtime, or because the server was restarted from an old snapshot.
--
-- ARGV: keeper, and the ids of the claims, each with a blank behind it
-- Returns how many of them were in the queue or held the name. The next is let in.
local mark, gone = '\n' .. ARGV[1] .. '\n', {}
for id in string.gmatch(ARGV[2], '%x+') do gone[id] = true end
load()
-- Only claims that have this keeper on record: ids come from a client, which may be wrong.
local removed, kept = #holders, {}
-- And none that was asked for by its id: another keeper may have found it, and hold it. Nor one that is
-- kept by its ticket, whose keeper is in capitals.
drop(function(holder)
  return gone[holder.id] and holder.keeper == ARGV[1] and holder.owner ~= 'claim-' .. holder.id
end)
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
