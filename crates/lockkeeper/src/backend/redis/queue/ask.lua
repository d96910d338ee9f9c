-- ARGV: id, mode, ttl, owner, keeper, whom and note, whether to queue, whether it was asked for
-- before, whether newcomers may go first.
-- Returns the token; or queued, place, ms until someone may be over, stamp; or busy; or uncovered, mode.
local value = redis.call('GET', KEYS[1])
local letter = value and string.byte(value)
if ARGV[2] == 'x' then
  if letter == 70 or (not value and redis.call('EXISTS', KEYS[2]) == 0) then
    local clock = redis.call('TIME')
    local token = math.floor((clock[1] * 1000000 + clock[2]) * 1.024)
    if value then token = math.max(token, tonumber(string.sub(value, 2)) + 1) end
    redis.call('SET', KEYS[1], 'X' .. ARGV[1] .. string.format('\n%.0f\n%s%03d\n', token, clock[1], clock[2] / 1000)
      .. ARGV[5] .. '\nx\n' .. ARGV[3] .. '\n' .. ARGV[4] .. '\n' .. ARGV[6], 'PX', ARGV[3])
    return token
  end
end
