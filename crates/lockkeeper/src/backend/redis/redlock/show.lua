-- Who has the lock.
--
-- KEYS[1]: the lock
-- Returns {value, ms left, seconds, microseconds}, {} if nobody has it, {-1} if the key is no lock.
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'table' then
  return {-1}
end
if not value then
  return {}
end
local now = redis.call('TIME')
return {value, redis.call('PTTL', KEYS[1]), now[1], now[2]}
