-- Deletes the lock, if it is the claim's; or leaves it for a while under a value that is nobody's.
--
-- KEYS[1]: the lock; ARGV: claim, ms for which nobody else may have the name yet, 1 if the request was
--          sent before, the channel for those who wait (empty: they are not told), 1 if the claim is the
--          one that the lock was taken as, 0 if it is the one that has the lock now
-- Returns 0 if the claim was not there to be given back, 2 if it was and somebody was told.
--
-- Not `call`: a key of another type is not ours, which is no error for a release.
local value = redis.pcall('GET', KEYS[1])
local id = type(value) == 'string' and string.sub(value, 1, 32)
if id and ARGV[5] == '1' then
  id = string.match(value, ' %%=(%x+)', 33) or id
end
if id ~= ARGV[1] then
  return tonumber(ARGV[3])
end
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[1])
  if ARGV[4] ~= '' then
    -- Not `call`: a user that may not publish may release all the same.
    local told = redis.pcall('PUBLISH', ARGV[4], '')
    if type(told) == 'number' and told > 0 then
      return 2
    end
  end
  return 1
end
-- A value that no claim has: taken, but by nobody who could renew or release it.
redis.call('SET', KEYS[1], 'released', 'PX', ARGV[2])
return 1
