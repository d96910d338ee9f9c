-- Gives a claim back and lets the next in: the common cases. What returns nothing here goes on to
-- lib.lua and release_full.lua.
--
-- ARGV: id
--       ms for which nobody else may have the name yet
--       a flag: 1 may be in the queue, 2 was sent before; a flag: newcomers may go first; and behind
--       them the keeper that asks, if it is to hear by the answer of its own claims that come next:
--       they need no message then
--       its token, and the predecessors that may be on record in its place, each id with a blank behind
--       it; only where the claim got the name by a local hand-over that Redis may not have heard of
-- Returns the ids and tokens of the keeper's claims that come next; behind them, if the one that comes
-- next holds alone, a list of its successors (successors.lua), or a 0 if the claim was not held.
-- Where none comes next: 1 if the claim was held, 0 if it was not, or the reason for which it was broken.
--
-- The letters are compared as bytes: 48 is 0, 88 is X, 89 is Y. A claim that is held is found by the id
-- behind the letter; anything else, and everything that is to stay, goes the long way.
local value = redis.call('GET', KEYS[1])
local letter, id = value and string.byte(value), ARGV[1]
if (letter == 88 or letter == 89) and ARGV[2] == '0' and string.sub(value, 2, #id + 2) == id .. '\n' then
  local last = string.sub(value, #id + 3, string.find(value, '\n', #id + 3, true) - 1)
  local head = letter == 89 and string.byte(ARGV[3], 2) == 48 and redis.call('LPOP', KEYS[2])
  if head then
    -- The next is one exclusive claim of a live keeper; everything else goes the long way, with the
    -- claim back at the head.
    local next_id, rest, keeper, ttl = string.match(head, '^(%x+)\n0\n%d+\n()(%x+)\nx\n(%d+)\n')
    if next_id then
      local clock = redis.call('TIME')
      -- The keeper that asks is alive, and hears of the grant by the answer. Any other is told by a
      -- message; what it gets first lasts only as long as its last heartbeat.
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
    -- Free, and nobody waits. The last token is kept for a minute. If memory is full, the key goes
    -- instead: nobody is kept from releasing, and the next token depends on the clock alone.
    local kept = redis.pcall('SET', KEYS[1], 'F' .. last, 'PX', '60000')
    if kept.err then redis.call('DEL', KEYS[1]) end
    return 1
  end
end
