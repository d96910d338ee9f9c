-- Takes the lock for a claim, if it is free; and remembers the token it may get.
--
-- KEYS: the lock, the largest token this server knows of
-- ARGV: value, claim, ttl, token (0 for none), 1 if the clock is to be told
-- Returns the largest token before if the claim has the lock, which it may have had before: the first
-- answer was lost; or {that, seconds, microseconds} with the clock. Else {0, value, ms left}; {-1} if
-- the key is no lock.
local taken = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[3])
if not taken then
  local value = redis.pcall('GET', KEYS[1])
  if type(value) == 'table' then
    return {-1}
  end
  -- What the lock was taken as: a claim that it passed to stands before that.
  local id = value and (string.match(value, ' %%=(%x+)', 33) or string.sub(value, 1, 32))
  if id ~= ARGV[2] then
    return {0, value or '', redis.call('PTTL', KEYS[1])}
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
local floor
if ARGV[4] ~= '0' then
  -- One call for both: nearly always the token is the largest.
  floor = redis.call('SET', KEYS[2], ARGV[4], 'GET') or '0'
  if tonumber(floor) > tonumber(ARGV[4]) then
    redis.call('SET', KEYS[2], floor)
  end
  -- What was remembered for this very claim is no other's.
  if not taken and tonumber(floor) == tonumber(ARGV[4]) then
    floor = string.format('%.0f', ARGV[4] - 1)
  end
else
  floor = redis.call('GET', KEYS[2]) or '0'
end
if ARGV[5] ~= '1' then
  return floor
end
local now = redis.call('TIME')
return {floor, now[1], now[2]}
