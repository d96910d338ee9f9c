-- A heartbeat: shows that a keeper lives, for all its claims that wait for the name, and looks at the
-- name for them.
--
-- ARGV: keeper, and 1 to audit: to be told which of its claims are in the queue, and to ask other
--       keepers whether they still have what they hold
-- Returns { whether the keeper counted as alive, ms until the first holder may expire, stamp,
--           { id, token and ms left of each of its claims that hold the name },
--           if it audits, the ids of its claims in the queue }
local keeper = ARGV[1]
load()
local alive = alive_until(keeper) > now and 1 or 0
if redis.call('EXISTS', KEYS[2]) == 1 then
  keep_waiting(keeper)
  -- Keepers and reasons of the past are not removed one by one, but when they have become many.
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
  -- A holder without an owner was released and stays for its shortest time: no keeper has it.
  if string.lower(holder.keeper) == keeper and holder.owner ~= '' then
    held[#held + 1] = holder.id
    held[#held + 1] = digits(holder.token)
    held[#held + 1] = holder.expires - now
  elseif holder.owner ~= '' and ARGV[2] == '1' then
    redis.pcall('PUBLISH', CHANNEL .. holder.keeper, 'whose ' .. holder.id .. ' ' .. KEYS[1])
  end
end
local answer = { alive, until_next(), digits(stamp()), held }
if ARGV[2] == '1' then
  -- By the keeper's line, which no other line of a record can look like: ids of claims and keepers are
  -- random, and the lines for people come last.
  local mark, waiting = '\n' .. keeper .. '\n', {}
  for _, record in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    if string.find(record, mark, 1, true) then
      waiting[#waiting + 1] = string.match(record, '^%x+')
    end
  end
  answer[5] = waiting
end
-- A name that nobody holds or waits for is left alone: a look must not create keys.
if #holders > 0 or form ~= '' then store() end
return answer
