-- Takes the lock for a claim, if it is free; and remembers the token it may get.
--
-- KEYS: the lock, the largest token this server knows of
-- ARGV: value, claim, ttl, token (0 for none)
-- Returns {1, the largest token before, seconds, microseconds} if the claim has the lock, which it may
-- have had before: the first answer was lost. Else {0, value, ms left}; {-1} if the key is no lock.
-- What the lock was taken as: a claim that it passed to stands before that.
local function taken_as(value)
  return string.match(value, ' %%=(%x+)', 33) or string.sub(value, 1, 32)
end

local taken = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3])
if not taken then
  local value = redis.pcall('GET', KEYS[1])
  if type(value) == 'table' then
    return {-1}
  end
  if not value or taken_as(value) ~= ARGV[2] then
    return {0, value or '', redis.call('PTTL', KEYS[1])}
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
local floor, token = false, tonumber(ARGV[4])
if token > 0 then
  -- One call for both: nearly always the token is the largest.
  floor = redis.call('SET', KEYS[2], ARGV[4], 'GET') or '0'
  if tonumber(floor) > token then
    redis.call('SET', KEYS[2], floor)
  end
else
  floor = redis.call('GET', KEYS[2]) or '0'
end
-- What was remembered for this very claim is no other's.
if not taken and tonumber(floor) == token then
  floor = string.format('%.0f', token - 1)
end
local now = redis.call('TIME')
return {1, floor, now[1], now[2]}
