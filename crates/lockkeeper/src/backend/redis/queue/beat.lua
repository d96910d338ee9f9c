-- ARGV: keeper. Shows that it lives, for all who wait through it.
-- Returns whether it counted as alive, ms until someone may be over, stamp, and of its claims that
-- hold the name id, token and ms left.
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
local answer = { alive, until_next(), digits(stamp()) }
for _, holder in ipairs(holders) do
  if holder.keeper == keeper then
    answer[#answer + 1] = holder.id
    answer[#answer + 1] = digits(holder.token)
    answer[#answer + 1] = holder.expires - now
  end
end
if #holders > 0 or form ~= '' then store() end
return answer
