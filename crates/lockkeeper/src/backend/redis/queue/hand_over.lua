-- ARGV: id, token, ms to keep it, the record from the keeper on, who may have had the name before it
-- (each id with a blank behind it), and two flags: to hear who is next, was asked for before. Whoever
-- of those has the name gave it up to this one. Returns the ids of the keeper's own claims that are next in line; if none of
-- them had it, why it was broken, or 0 if it was not; 1 if it may have had it, and be over.
local value, id = redis.call('GET', KEYS[1]), ARGV[1]
local holder = value and string.match(value, '^[XY](%x+)\n')
local clock = redis.call('TIME')
local micros = string.sub('00000' .. clock[2], -6)
-- With a token ahead of the clock there is more to be done.
if holder and string.find(ARGV[5], holder .. ' ', 1, true) and tonumber(ARGV[2]) <= tonumber(clock[1] .. micros) then
  local head = redis.call('LPOP', KEYS[2])
  if head and string.sub(head, 1, #id + 1) == id .. '\n' then
    local since = clock[1] .. string.sub(micros, 1, 3)
    redis.call('SET', KEYS[1], 'Y' .. id .. '\n' .. ARGV[2] .. '\n' .. since .. '\n' .. ARGV[4], 'PX', ARGV[3])
    return string.byte(ARGV[6]) == 49 and successors_of(string.sub(ARGV[4], 1, 32)) or {}
  end
  if head then redis.call('LPUSH', KEYS[2], head) end
end
