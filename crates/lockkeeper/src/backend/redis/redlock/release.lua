-- Deletes the lock, if it is the claim's; or leaves it for a while under a value that is nobody's.
--
-- KEYS[1]: the lock; ARGV: claim, the channel for those who wait (empty: they are not told); and, if one
--          of them is not 0, all of: ms for which nobody else may have the name yet, 1 if the request was
--          sent before, 1 if the claim is the one that the lock was taken as and not the one that has it
--          now
-- Returns 0 if the claim was not there to be given back, else 1 and how many were told.
--
-- Not `call`: a key of another type is not ours, which is no error for a release.
local value = redis.pcall('GET', KEYS[1])
local id = type(value) == 'string' and string.sub(value, 1, 32)
if id and ARGV[5] == '1' then
  id = string.match(value, ' %%=(%x+)', 33) or id
end
if id ~= ARGV[1] then
  return tonumber(ARGV[4] or '0')
end
if (ARGV[3] or '0') ~= '0' then
  -- A value that no claim has: taken, but by nobody who could renew or release it.
  redis.call('SET', KEYS[1], 'released', 'PX', ARGV[3])
  return 1
end
redis.call('DEL', KEYS[1])
if ARGV[2] ~= '' then
  -- Not `call`: a user that may not publish may release all the same.
  local told = redis.pcall('PUBLISH', ARGV[2], '')
  if type(told) == 'number' then
    return 1 + told
  end
end
return 1
