-- Asks for the name: the common cases, in as few commands as they need. What returns nothing here goes
-- on to lib.lua and ask_full.lua.
--
-- ARGV: id
--       ttl, in ms
--       the record, from the keeper on
--       four flags: exclusive, may queue, was asked for before, newcomers may go first
--       the largest token of the name that the keeper knows of: should Redis have forgotten the name
--       and its clock have gone back, at least that keeper sees no token twice
-- Returns the token; or
--   { queued, place, ms until the first claim ahead may expire, stamp }
--   { busy }
--   { uncovered, the mode that the owner holds }
--   { other, the mode of the claim that has this id, its ttl }
--
-- Letters are compared as bytes: 49 is 1, 70 is F, 88 is X, 89 is Y.
local value = redis.call('GET', KEYS[1])
local letter, flags = value and string.byte(value), ARGV[4]
if string.byte(flags) == 49 then
  -- Free, with the last token (F), or never held: nobody waits either, since a name with a queue is G,
  -- Y or M. The token is the time of the grant, and so is `since`, which is therefore written as 0.
  local last = letter == 70 and tonumber(string.sub(value, 2))
  if last or (not value and redis.call('EXISTS', KEYS[2]) + redis.call('EXISTS', KEYS[3]) == 0) then
    local clock = redis.call('TIME')
    local token = clock[1] .. string.sub('00000' .. clock[2], -6)
    -- Otherwise the clock went back, and the full script counts on from the last token.
    if tonumber(token) > tonumber(ARGV[5]) and tonumber(token) > (last or 0) then
      redis.call('SET', KEYS[1], 'X' .. ARGV[1] .. '\n' .. token .. '\n0\n' .. ARGV[3], 'PX', ARGV[2])
      return token
    end
  end
  -- Held by one exclusive claim, and this one asks for the first time, may queue, and newcomers do
  -- not go first: to the end of the queue.
  if (letter == 88 or letter == 89) and string.sub(flags, 2, 4) == '100' then
    local to = string.find(value, '\n', #ARGV[1] + 3, true)
    last = to and tonumber(string.sub(value, #ARGV[1] + 3, to - 1))
    -- The owner's line of the record: behind the keeper (32 letters), the mode (1), the ttl, and a line
    -- break after each.
    local from = 36 + #ARGV[2]
    local owner = string.sub(ARGV[3], from, string.find(ARGV[3], '\n', from + 1, true))
    local clock = redis.call('TIME')
    -- Not where the token is far ahead of the clock (see FAR), or where the holder is of the same
    -- owner, which may then enter again.
    if last and last <= (clock[1] + 86400) * 1000000 and not string.find(value, owner, to, true) then
      local micros = string.sub('00000' .. clock[2], -6)
      local millis = string.sub(micros, 1, 3)
      local place = redis.call('RPUSH', KEYS[2], ARGV[1] .. '\n0\n' .. clock[1] .. millis .. '\n' .. ARGV[3])
      -- To ask counts as a heartbeat: the keeper lives for two more seconds.
      local first = redis.call('HSET', KEYS[3], 'a' .. string.sub(ARGV[3], 1, 32), clock[1] + 2 .. millis)
      local next = 2000
      -- The expiries only when something is new: heartbeats extend them later. The holder's own expiry
      -- is told to the first waiter of a keeper, which looks when it may have come.
      if first == 1 or place == 1 then
        redis.call('PEXPIRE', KEYS[2], 60000)
        if redis.call('PTTL', KEYS[3]) < 60000 then redis.call('PEXPIRE', KEYS[3], 60000) end
        next = redis.call('PTTL', KEYS[1])
      end
      if letter == 88 then redis.call('SETRANGE', KEYS[1], 0, 'Y') end
      -- Below every token that is granted from now on.
      local stamp = clock[1] .. micros
      if last > tonumber(stamp) then stamp = string.format('%.0f', last) end
      return { 'queued', place, next, stamp }
    end
  end
end
