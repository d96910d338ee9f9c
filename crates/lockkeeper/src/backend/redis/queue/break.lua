-- Takes the claims with a token from their holder, tells its keeper, and lets the next in.
--
-- ARGV: token, reason, and a name for this request, of hex digits as ids are: should the request come
--       twice, the answer is the same
-- Returns how many claims there were: several, if their owner entered again.
local token = tonumber(ARGV[1])
local done = redis.call('HGET', KEYS[3], 'b' .. ARGV[3])
if done then return tonumber(string.match(done, '%d+$')) end
load()
local broken = {}
for _, holder in ipairs(holders) do
  if holder.token == token and holder.expires > now then broken[#broken + 1] = holder end
end
if #broken == 0 then return 0 end
-- The reason stays for a minute, for a holder that misses the message and asks by its next renewal.
for _, holder in ipairs(broken) do
  redis.call('HSET', KEYS[3], 'b' .. holder.id, digits(now + KEPT) .. '\n' .. ARGV[2])
  redis.pcall('PUBLISH', CHANNEL .. string.lower(holder.keeper), 'broken ' .. holder.id .. ' ' .. ARGV[2])
end
redis.call('HSET', KEYS[3], 'b' .. ARGV[3], digits(now + KEPT) .. '\n' .. #broken)
extend(KEYS[3], KEPT)
-- All claims of the owner: they share the token.
drop(function(holder) return holder.token == token end)
advance()
store()
return #broken
