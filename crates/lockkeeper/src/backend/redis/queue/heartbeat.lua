-- ARGV: keeper, and 1 to call the roll. Shows that it lives, for all who wait through it.
-- Returns whether it counted as alive, ms until someone may be over, stamp, of its claims that hold
-- the name id, token and ms left; and if the roll is called, the ids of those in the queue. Then
-- other keepers are asked whether they still have what they hold.
local keeper = ARGV[1]
load()
local alive = alive_until(keeper) > now and 1 or 0
if redis.call('EXISTS', KEYS[2]) == 1 then
  keep_waiting(keeper)
  if redis.call('HLEN', KEYS[3]) > 200 then
    local fields = redis.call('HGETALL', KEYS[3])
    for i = 1, #fields, 2 do
      local kind = string.sub(fields[i], 1, 1)
      local over = (kind == 'a' or kind == 'b') and tonumber(string.match(fields[i + 1], '^%d+'))
      if over and over <= now then redis.call('HDEL', KEYS[3], fields[i]) end
    end
  end
end
advance()
local held = {}
for _, holder in ipairs(holders) do
  -- One without an owner is nobody's, and to stay.
  if holder.keeper == keeper and holder.owner ~= '' then
    held[#held + 1] = holder.id
    held[#held + 1] = digits(holder.token)
    held[#held + 1] = holder.expires - now
  elseif holder.owner ~= '' and ARGV[2] == '1' then
    redis.pcall('PUBLISH', CHANNEL .. holder.keeper, 'whose ' .. holder.id .. ' ' .. KEYS[1])
  end
end
local answer = { alive, until_next(), digits(stamp()), held }
if ARGV[2] == '1' then
  local mark, waiting = '\n' .. keeper .. '\n', {}
  for _, record in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    if string.find(record, mark, 1, true) then
      waiting[#waiting + 1] = string.match(record, '^%x+')
    end
  end
  answer[5] = waiting
end
if #holders > 0 or form ~= '' then store() end
return answer
