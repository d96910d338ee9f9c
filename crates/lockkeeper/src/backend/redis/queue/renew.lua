-- Gives a claim its whole ttl again, if it is still held; never less than it has, since another that has
-- the claim may have been told more.
--
-- ARGV: id, ttl; and for a claim that others may have, too, the keeper that has it from now on, or `-` for
--       the same one: messages about the claim go to that one, which answers for it when others ask
--       whether it is there. The ttl on record is then raised to this one: no claim is believed to have
--       more than that left. The same keeper is then written in capitals: it is told of a break, but is
--       not asked for the claim any more, since it may have detached it and not know who keeps it
-- Returns 1 if the claim is held; else { broken, reason } or { gone }
--
-- Without lib.lua: a renewal is the most frequent request, and touches no other claim. 77 is M, 88 is
-- X, 89 is Y.
local value = redis.call('GET', KEYS[1])
local letter = value and string.byte(value)
-- A record of that keeper, from the part before the keeper's line to the ttl.
local function adopted(head, keeper, mode, ttl)
  keeper = ARGV[3] == '-' and string.upper(keeper) or ARGV[3]
  return head .. keeper .. mode .. (tonumber(ttl) < tonumber(ARGV[2]) and ARGV[2] or ttl)
end
-- Whether a record with this beginning says all of that already: then its time is all that changes.
local function is_adopted(record, head)
  local keeper, ttl = string.match(record, head .. '(%x+)\n%w+\n(%d+)')
  return keeper and keeper == (ARGV[3] == '-' and string.upper(keeper) or ARGV[3])
    and tonumber(ttl) >= tonumber(ARGV[2])
end
-- For how long it is kept, which has `left`, by a record with this beginning.
local function span(left, record, head)
  local ttl = tonumber(ARGV[2])
  if left <= ttl then return ttl end
  return math.max(ttl, math.min(left, tonumber(string.match(record, head .. '%x+\n%w+\n(%d+)')) or ttl))
end
if (letter == 88 or letter == 89) and string.sub(value, 2, #ARGV[1] + 2) == ARGV[1] .. '\n' then
  local kept = string.format('%.0f', span(redis.call('PTTL', KEYS[1]), value, '^.%x+\n%d+\n%d+\n'))
  if ARGV[3] and not is_adopted(value, '^.%x+\n%d+\n%d+\n') then
    value = string.gsub(value, '^(.%x+\n%d+\n%d+\n)(%x+)(\n%w+\n)(%d+)', adopted, 1)
    redis.call('SET', KEYS[1], value, 'PX', kept)
  else
    redis.call('PEXPIRE', KEYS[1], kept)
  end
  return 1
end
-- One of several holders, which are in the state.
if letter == 77 then
  local held = redis.call('HGET', KEYS[3], 'h' .. ARGV[1])
  if held then
    local clock = redis.call('TIME')
    local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
    local to = string.find(held, '\n', 1, true)
    local expires = tonumber(string.sub(held, 1, to - 1))
    local ttl = span(expires - now, held, '^%d+\n%x+\n%d+\n%d+\n')
    if ARGV[3] then
      held = string.gsub(held, '^(%d+\n%x+\n%d+\n%d+\n)(%x+)(\n%w+\n)(%d+)', adopted, 1)
    end
    if expires > now then
      -- The expiries first: at maxmemory Redis lets a script go on once it has written.
      for _, key in ipairs({ KEYS[1], KEYS[3] }) do
        redis.call('PEXPIRE', key, string.format('%.0f', math.max(redis.call('PTTL', key), ttl)))
      end
      redis.call('HSET', KEYS[3], 'h' .. ARGV[1], string.format('%.0f', now + ttl) .. string.sub(held, to))
      return 1
    end
  end
end
local broken = redis.call('HGET', KEYS[3], 'b' .. ARGV[1])
if broken then return { 'broken', string.sub(broken, string.find(broken, '\n', 1, true) + 1) } end
return { 'gone' }
