-- Takes the lock from a claim, and leaves word of why.
--
-- KEYS: the lock, why the claim was broken, the same for the claim that the lock was taken as
-- ARGV: claim, reason, the channel for those who wait
-- Returns 1, or 0 if the lock is not the claim's.
local value = redis.pcall('GET', KEYS[1])
if type(value) ~= 'string' or string.sub(value, 1, 32) ~= ARGV[1] then
  return 0
end
-- The holder may come to ask for as long as it would have had the lock.
local left = math.max(redis.call('PTTL', KEYS[1]), 1000)
redis.call('SET', KEYS[2], ARGV[2], 'PX', left)
if KEYS[3] ~= KEYS[2] then
  redis.call('SET', KEYS[3], ARGV[2], 'PX', left)
end
redis.call('DEL', KEYS[1])
redis.pcall('PUBLISH', ARGV[3], '')
return 1
