-- KEYS[1] the lock; ARGV: claim, milliseconds to linger.
-- Not `call`: a key of another kind is not ours, which is no error to one who gives back.
if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if ARGV[2] == '0' then
  return redis.call('DEL', KEYS[1])
end
-- A value that no claim has: taken, but by nobody who could renew or release it.
redis.call('SET', KEYS[1], 'released', 'PX', ARGV[2])
return 1
