-- Gives a claim its whole ttl again, if it is still held.
--
-- ARGV: id, ttl; and where another keeper made the claim, the keeper that has it from now on: messages
--       about the claim go to that one, which answers for it when others ask whether it is there. The
--       ttl on record is then raised to this one: no claim is believed to have more than that left
-- Returns 1 if the claim is held; else { broken, reason } or { gone }
--
-- Without lib.lua: a renewal is the most frequent request, and touches no other claim. 77 is M, 88 is
-- X, 89 is Y.
local value = redis.call('GET', KEYS[1])
local letter = value and string.byte(value)
-- A record of this keeper, from the part before the keeper's line to the ttl.
local function adopted(head, mode, ttl)
  return head .. ARGV[3] .. mode .. (tonumber(ttl) < tonumber(ARGV[2]) and ARGV[2] or ttl)
end
if (letter == 88 or letter == 89) and string.sub(value, 2, #ARGV[1] + 2) == ARGV[1] .. '\n' then
  if ARGV[3] then
    value = string.gsub(value, '^(.%x+\n%d+\n%d+\n)%x+(\n%w+\n)(%d+)', adopted, 1)
    redis.call('SET', KEYS[1], value, 'PX', ARGV[2])
  else
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
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
    if ARGV[3] then
      held = string.gsub(held, '^(%d+\n%x+\n%d+\n%d+\n)%x+(\n%w+\n)(%d+)', adopted, 1)
    end
    if tonumber(string.sub(held, 1, to - 1)) > now then
      local ttl = tonumber(ARGV[2])
      -- The expiries first: at maxmemory Redis lets a script go on once it has written.
      for _, key in ipairs({ KEYS[1], KEYS[3] }) do
        redis.call('PEXPIRE', key, math.max(redis.call('PTTL', key), ttl))
      end
      redis.call('HSET', KEYS[3], 'h' .. ARGV[1], string.format('%.0f', now + ttl) .. string.sub(held, to))
      return 1
    end
  end
end
local broken = redis.call('HGET', KEYS[3], 'b' .. ARGV[1])
if broken then return { 'broken', string.sub(broken, string.find(broken, '\n', 1, true) + 1) } end
return { 'gone' }
