-- KEYS[1] the lock; ARGV: claim, milliseconds to stay, 1 if it was asked for before. Returns 0 if
-- the claim was not there to be given back.
-- Not `call`: a key of another kind is not ours, which is no error to one who gives back.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return tonumber(ARGV[3])
end
if ARGV[2] == '0' then
  return redis.call('DEL', KEYS[1])
end
-- A value that no claim has: taken, but by nobody who could renew or release it.
redis.call('SET', KEYS[1], 'released', 'PX', ARGV[2])
return 1
