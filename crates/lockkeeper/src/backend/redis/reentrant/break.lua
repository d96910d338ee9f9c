-- Takes the claims with a token from their holder, and tells its keeper. The reason stays for a minute,
-- for a holder that misses the message and asks by its next renewal.
--
-- ARGV: …, token, reason
-- Returns how many claims there were.
local broken = 0
settle()
for name, claim in pairs(claims) do
  if claim.token == tonumber(ARGV[3]) then
    local id, keeper = string.sub(name, 2), string.match(claim.rest, '^[^\n]*')
    broken = broken + 1
    strike(name)
    redis.call('HSET', KEYS[2], 'b' .. id, digits(now + KEPT) .. '\n' .. ARGV[4])
    redis.call('PUBLISH', keeper, 'broken ' .. id .. ' ' .. ARGV[4])
  end
end
finish()
if broken > 0 then
  redis.call('PEXPIRE', KEYS[2], math.max(redis.call('PTTL', KEYS[2]), KEPT))
end
return broken
