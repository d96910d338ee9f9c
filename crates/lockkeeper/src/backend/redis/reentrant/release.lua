-- Gives a claim back, and wakes those that may wait.
--
-- ARGV: …, id, ms for which nobody else may have the name yet, and 1 if the claim is withdrawn: then it
--       must not come after all; 2 if the request was sent before
-- Returns 1; or 0 if the claim was not there to be given back, or the reason for which it was broken.
local id, stay = ARGV[3], tonumber(ARGV[4])
local claim = claims['c' .. id]
-- Only a claim that still holds can stay: one that is over must not come back for that time.
if claim and holds(claim) and stay > 0 then
  -- Nobody's from now on, under a field that no owner has.
  local field = id .. ':lingering' .. (writes(claim.field) and ':write' or '')
  local rest = string.gsub(claim.rest, '^([^\n]*\n)[^\n]*', '%1-')
  note('l' .. id, { expires = now + stay, token = claim.token, since = claim.since,
    field = field, rest = rest })
end
if claim then strike('c' .. id) end
settle()
finish()
if ARGV[5] == '1' then
  -- Full memory keeps no one from withdrawing.
  redis.pcall('HSET', KEYS[2], 'w' .. id, digits(now + KEPT))
  redis.call('PEXPIRE', KEYS[2], math.max(redis.call('PTTL', KEYS[2]), KEPT))
end
if claim or ARGV[5] == '1' then return 1 end
local broken = others['b' .. id]
if broken then return string.sub(broken, string.find(broken, '\n', 1, true) + 1) end
-- Where it was given back before, that left a token behind, for a while.
return ARGV[5] == '2' and last > 0 and 1 or 0
