-- Gives a claim its whole ttl again, if it is still held.
--
-- ARGV: …, id, ttl, and 1 for a ticket's: then never less than it has, since another that has the claim may
--       have been told more
-- Returns 1 if the claim is held; else { broken, reason } or { gone }.
local claim = claims['c' .. ARGV[3]]
if claim and holds(claim) then
  -- The expiry first: at maxmemory Redis lets a script go on once it has written.
  redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[4])))
  local least = ARGV[5] == '1' and claim.expires or 0
  claim.expires = math.max(least, now + tonumber(ARGV[4]))
  note('c' .. ARGV[3], claim)
  settle()
  finish()
  return 1
end
local broken = others['b' .. ARGV[3]]
if broken then return { 'broken', string.sub(broken, string.find(broken, '\n', 1, true) + 1) } end
return { 'gone' }
