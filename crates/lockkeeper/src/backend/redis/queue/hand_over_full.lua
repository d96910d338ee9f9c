-- Tells of a local hand-over: every case. See hand_over.lua for the arguments and the answers.
local id, ms = ARGV[1], tonumber(ARGV[3])
load()
-- Whether the successor, or a predecessor in its place, holds the name.
local found = false
for at, holder in ipairs(holders) do
  local is_here = holder.id == id
  if holder.expires > now and (is_here or string.find(ARGV[5], holder.id .. ' ', 1, true)) then
    found = true
    -- The expiry first: at maxmemory Redis lets a script go on once it has written.
    redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), ms))
    if is_here then
      -- Told before, and maybe renewed since: nothing is taken from it.
      holder.expires, holder.fresh = math.max(holder.expires, now + ms), true
    else
      if holder.field then redis.call('HDEL', KEYS[3], holder.field) end
      local successor = read(id .. '\n' .. ARGV[2] .. '\n' .. digits(now) .. '\n' .. ARGV[4])
      successor.expires = now + ms
      holders[at] = successor
      last = math.max(last, plausible(successor.token))
    end
  end
end
-- The successor and its predecessors are out of the queue: they have had their turn, or it is over.
local left = leave_line(ARGV[5] .. id .. ' ')
-- Nothing to hand over: the name was lost before. Those that were behind the claims in the queue may be
-- next now.
if not found then
  if left > 0 then
    advance()
    store()
  end
  local broken = redis.call('HGET', KEYS[3], 'b' .. id)
  return broken and string.sub(broken, string.find(broken, '\n', 1, true) + 1) or tonumber(string.sub(ARGV[6], 2))
end
advance()
store()
return {}
