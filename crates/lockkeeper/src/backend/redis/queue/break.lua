-- ARGV: token, reason. Takes the claims with that token from their holder.
local token = tonumber(ARGV[1])
load()
local broken = {}
for _, holder in ipairs(holders) do
  if holder.token == token and holder.expires > now then broken[#broken + 1] = holder end
end
if #broken == 0 then return 0 end
for _, holder in ipairs(broken) do
  redis.call('HSET', KEYS[3], 'b' .. holder.id, digits(now + KEPT) .. '\n' .. ARGV[2])
  redis.pcall('PUBLISH', CHANNEL .. holder.keeper, 'broken ' .. holder.id .. ' ' .. ARGV[2])
end
extend(KEYS[3], KEPT)
drop(function(holder) return holder.token == token end)
advance()
store()
return #broken
