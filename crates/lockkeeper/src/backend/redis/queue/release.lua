-- ARGV: id, ms to stay, two flags: 1 may be in the queue, 2 was asked for before; newcomers may go
-- first; and behind the flags the keeper that asks, if it is to hear of its own claims that come
-- next by the answer: they need no message then; the token, and who may have had the name before
-- this one and given it up to it (each id with a blank behind it). Returns the ids and tokens of those who come next, and if there
-- is one that holds alone, which of its keeper's are next in line, a 0 behind them if it was not
-- held; where there are none, whether it was held, or why it was broken.
local value = redis.call('GET', KEYS[1])
local letter, id = value and string.byte(value), ARGV[1]
if (letter == 88 or letter == 89) and ARGV[2] == '0' and string.sub(value, 2, #id + 2) == id .. '\n' then
  local last = string.sub(value, #id + 3, string.find(value, '\n', #id + 3, true) - 1)
  local head = letter == 89 and string.byte(ARGV[3], 2) == 48 and redis.call('LPOP', KEYS[2])
  if head then
    -- Hands over to one exclusive claim of a live keeper; everything else goes the long way.
    local next_id, rest, keeper, ttl = string.match(head, '^(%x+)\n0\n%d+\n()(%x+)\nx\n(%d+)\n')
    if next_id then
      local clock = redis.call('TIME')
      -- A keeper that asks is alive, and hears of it by the answer.
      local here, span = keeper == string.sub(ARGV[3], 3), math.min(tonumber(ttl), 2000)
      if not here then
        local alive = tonumber(redis.call('HGET', KEYS[3], 'a' .. keeper) or 0)
        span = math.min(span, alive - clock[1] * 1000 - math.floor(clock[2] / 1000))
      end
      local token = clock[1] .. string.sub('00000' .. clock[2], -6)
      if span > 0 and tonumber(token) > tonumber(last) then
        redis.call('SET', KEYS[1], 'Y' .. next_id .. '\n' .. token .. '\n0\n' .. string.sub(head, rest), 'PX', span)
        if here then return { next_id, token, successors_of(keeper) } end
        redis.pcall('PUBLISH', '@PREFIX@keeper:' .. keeper, 
          'granted ' .. next_id .. ' ' .. token .. ' ' .. KEYS[1])
        return 1
      end
    end
    redis.call('LPUSH', KEYS[2], head)
  elseif letter == 88 or string.byte(ARGV[3], 2) == 48 then
    -- Full memory keeps no one from releasing; the token then depends on the clock alone.
    local kept = redis.pcall('SET', KEYS[1], 'F' .. last, 'PX', '60000')
    if kept.err then redis.call('DEL', KEYS[1]) end
    return 1
  end
end
