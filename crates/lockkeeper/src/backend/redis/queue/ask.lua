-- ARGV: id, ttl, the record from the keeper on, four flags: exclusive, may queue, was asked for
-- before, newcomers may go first; and the largest token that the keeper knows of: should Redis have
-- forgotten it and its clock have gone back, at least that keeper sees none twice.
-- Returns the token; or queued, place, ms until someone may be over, stamp; or busy; or uncovered,
-- mode.
local value = redis.call('GET', KEYS[1])
local letter, flags = value and string.byte(value), ARGV[4]
if string.byte(flags) == 49 then
  local last = letter == 70 and string.match(value, '^F(%d+)$')
  if last or (not value and redis.call('EXISTS', KEYS[2], KEYS[3]) == 0) then
    local clock = redis.call('TIME')
    local token = math.floor((clock[1] * 1000000 + clock[2]) * 1.024)
    -- Otherwise the clock went back.
    if token > tonumber(ARGV[5]) and token > tonumber(last or 0) then
      redis.call('SET', KEYS[1], 'X' .. ARGV[1] .. '\n' .. string.format('%.0f', token) .. '\n0\n' .. ARGV[3],
        'PX', ARGV[2])
      return token
    end
  end
  -- Held by one who does not leave it to us: into the queue.
  last = (letter == 88 or letter == 89) and string.match(value, '^.%x+\n(%d+)\n')
  if last and string.sub(flags, 2, 4) == '100'
    and not string.find(value, string.match(ARGV[3], '\n%d+(\n[^\n]*\n)'), 1, true) then
    local clock = redis.call('TIME')
    local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
    local place = redis.call('RPUSH', KEYS[2], ARGV[1] .. '\n0\n' .. string.format('%.0f', now) .. '\n' .. ARGV[3])
    local first = redis.call('HSET', KEYS[3], 'a' .. string.sub(ARGV[3], 1, 32), string.format('%.0f', now + 2000))
    if first == 1 or place == 1 then
      redis.call('PEXPIRE', KEYS[2], 60000)
      if redis.call('PTTL', KEYS[3]) < 60000 then redis.call('PEXPIRE', KEYS[3], 60000) end
    end
    if letter == 88 then redis.call('SETRANGE', KEYS[1], 0, 'Y') end
    local stamp = math.max(tonumber(last), math.floor((clock[1] * 1000000 + clock[2]) * 1.024))
    return { 'queued', place, redis.call('PTTL', KEYS[1]), string.format('%.0f', stamp) }
  end
end
