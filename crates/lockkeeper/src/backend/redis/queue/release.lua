-- ARGV: id, ms to stay, whether the claim may still be in the queue, whether newcomers may go
-- first.
local value = redis.call('GET', KEYS[1])
if value and string.byte(value) == 88 and ARGV[2] == '0' and string.sub(value, 2, #ARGV[1] + 2) == ARGV[1] .. '\n' then
  local kept = redis.pcall('SET', KEYS[1], 'F' .. string.match(value, '^%d+', #ARGV[1] + 3), 'PX', 60000)
  if kept.err then redis.call('DEL', KEYS[1]) end
  return 1
end
