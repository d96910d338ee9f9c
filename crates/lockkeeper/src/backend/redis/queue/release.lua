-- ARGV: id, ms to stay, and two flags: may be in the queue, newcomers may go first.
local value = redis.call('GET', KEYS[1])
local letter, id = value and string.byte(value), ARGV[1]
if (letter == 88 or letter == 89) and ARGV[2] == '0' and string.sub(value, 2, #id + 2) == id .. '\n' then
  local last = string.match(value, '^%d+', #id + 3)
  local head = letter == 89 and string.byte(ARGV[3], 2) == 48 and redis.call('LPOP', KEYS[2])
  if head then
    -- Hands over to one exclusive claim of a live keeper; everything else goes the long way.
    local next_id, keeper, ttl = string.match(head, '^(%x+)\n0\n%d+\n(%x+)\nx\n(%d+)\n')
    if next_id then
      local alive = tonumber(redis.call('HGET', KEYS[3], 'a' .. keeper) or 0)
      local clock = redis.call('TIME')
      local span = math.min(tonumber(ttl), 2000, alive - clock[1] * 1000 - math.floor(clock[2] / 1000))
      local token = math.floor((clock[1] * 1000000 + clock[2]) * 1.024)
      if span > 0 and token > tonumber(last) then
        token = string.format('%.0f', token)
        redis.call('SET', KEYS[1], 'Y' .. next_id .. '\n' .. token .. '\n0\n' .. string.match(head, '^%x+\n0\n%d+\n(.*)'),
          'PX', span)
        redis.pcall('PUBLISH', '@PREFIX@keeper:' .. keeper, 'granted ' .. next_id .. ' ' .. token)
        return 1
      end
    end
    redis.call('LPUSH', KEYS[2], head)
  elseif letter == 88 or string.byte(ARGV[3], 2) == 48 then
    -- Full memory keeps no one from releasing; the token then depends on the clock alone.
    local kept = redis.pcall('SET', KEYS[1], 'F' .. last, 'PX', 60000)
    if kept.err then redis.call('DEL', KEYS[1]) end
    return 1
  end
end
