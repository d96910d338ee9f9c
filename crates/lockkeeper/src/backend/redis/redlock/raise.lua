-- Gives a claim its token, if the lock is still its own, and remembers the token.
--
-- KEYS: the lock, the largest token this server knows of; ARGV: value with the token, claim, token
-- Returns 1, or 0 if the lock is not the claim's.
local value = redis.pcall('GET', KEYS[1])
if type(value) ~= 'string' or string.sub(value, 1, 32) ~= ARGV[2] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'KEEPTTL')
if tonumber(ARGV[3]) > tonumber(redis.call('GET', KEYS[2]) or '0') then
  redis.call('SET', KEYS[2], ARGV[3])
end
return 1
