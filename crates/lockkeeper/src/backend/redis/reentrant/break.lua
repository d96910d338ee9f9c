-- ARGV: …, token, reason. Takes the claims with that token from their holder; returns how many.
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
