-- Gives a claim its whole ttl, if the key is its own.
--
-- KEYS[1]: the lock; ARGV: claim, ttl, and 1 for a ticket's: then never less than it has, since another that
--          has the claim may have been told more
-- Returns 1 if the key is the claim's; 0 if it is not; -1 if it holds something that is no lock at all.
local value = redis.pcall('GET', KEYS[1])
if value == ARGV[1] then
  if ARGV[3] == '1' and redis.call('PTTL', KEYS[1]) > tonumber(ARGV[2]) then return 1 end
  return redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return type(value) == 'table' and -1 or 0
