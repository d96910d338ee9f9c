-- ARGV: id, ttl, the record from the keeper on, four flags: exclusive, may queue, was asked for
-- before, newcomers may go first; and the largest token of the name that the keeper knows of: should
-- Redis have forgotten it and its clock have gone back, at least that keeper sees none twice.
-- Returns the token; or queued, place, ms until someone may be over, stamp; or busy; or uncovered,
-- mode.
local value = redis.call('GET', KEYS[1])
local letter, flags = value and string.byte(value), ARGV[4]
if string.byte(flags) == 49 then
  local last = letter == 70 and tonumber(string.sub(value, 2))
  if last or (not value and redis.call('EXISTS', KEYS[2]) + redis.call('EXISTS', KEYS[3]) == 0) then
    local clock = redis.call('TIME')
    local token = clock[1] .. string.sub('00000' .. clock[2], -6)
    -- Otherwise the clock went back.
    if tonumber(token) > tonumber(ARGV[5]) and tonumber(token) > (last or 0) then
      redis.call('SET', KEYS[1], 'X' .. ARGV[1] .. '\n' .. token .. '\n0\n' .. ARGV[3], 'PX', ARGV[2])
      return token
    end
  end
  -- Held by one who does not leave it to us: into the queue.
  if (letter == 88 or letter == 89) and string.sub(flags, 2, 4) == '100' then
    local to = string.find(value, '\n', #ARGV[1] + 3, true)
    last = to and tonumber(string.sub(value, #ARGV[1] + 3, to - 1))
    local from = 36 + #ARGV[2]
    local owner = string.sub(ARGV[3], from, string.find(ARGV[3], '\n', from + 1, true))
    local clock = redis.call('TIME')
    -- With a token far ahead of the clock there is more to be done.
    if last and last <= (clock[1] + 86400) * 1000000 and not string.find(value, owner, to, true) then
      local micros = string.sub('00000' .. clock[2], -6)
      local millis = string.sub(micros, 1, 3)
      local place = redis.call('RPUSH', KEYS[2], ARGV[1] .. '\n0\n' .. clock[1] .. millis .. '\n' .. ARGV[3])
      local first = redis.call('HSET', KEYS[3], 'a' .. string.sub(ARGV[3], 1, 32), clock[1] + 2 .. millis)
      local next = 2000
      if first == 1 or place == 1 then
        redis.call('PEXPIRE', KEYS[2], 60000)
        if redis.call('PTTL', KEYS[3]) < 60000 then redis.call('PEXPIRE', KEYS[3], 60000) end
        next = redis.call('PTTL', KEYS[1])
      end
      if letter == 88 then redis.call('SETRANGE', KEYS[1], 0, 'Y') end
      local stamp = clock[1] .. micros
      if last > tonumber(stamp) then stamp = string.format('%.0f', last) end
      return { 'queued', place, next, stamp }
    end
  end
end
