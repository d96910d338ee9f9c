-- Gives a claim its whole ttl; takes the lock anew if nobody has it, unless the claim was broken.
--
-- KEYS: the lock, the largest token this server knows of, why the claim was broken
-- ARGV: value (empty: take nothing anew), claim, ttl, token (0 for none)
-- Returns {1, ms that were left} if the lock was the claim's; {2} if it was nobody's and is the claim's
-- now; {0} if it is another's; {3, reason} if the claim was broken.
local function remember()
  if tonumber(ARGV[4]) > tonumber(redis.call('GET', KEYS[2]) or '0') then
    redis.call('SET', KEYS[2], ARGV[4])
  end
end

local value = redis.pcall('GET', KEYS[1])
if type(value) == 'string' and string.sub(value, 1, 32) == ARGV[2] then
  local left = redis.call('PTTL', KEYS[1])
  if ARGV[1] == '' or value == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
  else
    -- It voted too late to be told the token.
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
    remember()
  end
  return {1, left}
end
local broken = redis.call('GET', KEYS[3])
if broken then
  return {3, broken}
end
if value or ARGV[1] == '' then
  return {0}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
remember()
return {2}
