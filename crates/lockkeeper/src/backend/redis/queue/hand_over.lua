-- Tells of a local hand-over: the name belongs to a successor of the claim that is on record here.
-- The common case; what returns nothing here goes on to lib.lua and hand_over_full.lua.
--
-- ARGV: id of the successor
--       its token
--       ms for which it is kept at first
--       its record, from the keeper on
--       the predecessors that may be on record, each id with a blank behind it
--       two flags: to be told which claims are next; was sent before
-- Returns a list with the ids of the keeper's claims that are next in the queue, empty if that was not
-- asked. If no predecessor had the name: the reason for which it was broken, or 0 if it was not; or 1 if
-- the request may have been carried out before, and the successor be over.
local value, id = redis.call('GET', KEYS[1]), ARGV[1]
local holder = value and string.match(value, '^[XY](%x+)\n')
local clock = redis.call('TIME')
local micros = string.sub('00000' .. clock[2], -6)
-- A predecessor holds it alone, and the successor is at the head of the queue. With a token ahead of
-- the clock the counter has to be kept, which the full script does.
if holder and string.find(ARGV[5], holder .. ' ', 1, true) and tonumber(ARGV[2]) <= tonumber(clock[1] .. micros) then
  local head = redis.call('LPOP', KEYS[2])
  if head and string.sub(head, 1, #id + 1) == id .. '\n' then
    local since = clock[1] .. string.sub(micros, 1, 3)
    redis.call('SET', KEYS[1], 'Y' .. id .. '\n' .. ARGV[2] .. '\n' .. since .. '\n' .. ARGV[4], 'PX', ARGV[3])
    return string.byte(ARGV[6]) == 49 and successors_of(string.sub(ARGV[4], 1, 32)) or {}
  end
  if head then redis.call('LPUSH', KEYS[2], head) end
end
