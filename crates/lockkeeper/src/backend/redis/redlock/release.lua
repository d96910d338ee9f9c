-- Deletes the lock, if it is the claim's; or leaves it for a while under a value that is nobody's.
--
-- KEYS[1]: the lock; ARGV: claim, ms for which nobody else may have the name yet, 1 if the request was
--          sent before, the channel for those who wait (empty: they are not told)
-- Returns 0 if the claim was not there to be given back.
--
-- Not `call`: a key of another type is not ours, which is no error for a release.
local value = redis.pcall('GET', KEYS[1])
if type(value) ~= 'string' or string.sub(value, 1, 32) ~= ARGV[1] then
  return tonumber(ARGV[3])
end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
  if ARGV[4] ~= '' then
    -- Not `call`: a user that may not publish may release all the same.
    redis.pcall('PUBLISH', ARGV[4], '')
  end
  return 1
end
-- A value that no claim has: taken, but by nobody who could renew or release it.
redis.call('SET', KEYS[1], 'released', 'PX', ARGV[2])
return 1
