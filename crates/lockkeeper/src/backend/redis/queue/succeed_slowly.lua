local id, ms = ARGV[1], tonumber(ARGV[3])
load()
local found = false
for at, holder in ipairs(holders) do
  if holder.expires > now then
    if holder.id == id then
      -- Told before, and maybe renewed since: nothing is taken from it.
      holder.expires, holder.fresh, found = math.max(holder.expires, now + ms), true, true
    elseif string.find(ARGV[5], holder.id .. ' ', 1, true) then
      -- The expiry first: at maxmemory Redis lets a script go on once it has written.
      redis.call('PEXPIRE', KEYS[1], digits(ms))
      if holder.field then redis.call('HDEL', KEYS[3], holder.field) end
      local heir = read(id .. '\n' .. ARGV[2] .. '\n' .. digits(now) .. '\n' .. ARGV[4])
      heir.expires, found = now + ms, true
      holders[at] = heir
      last = math.max(last, heir.token)
    end
  end
end
-- They have had their turn, or it is over.
leave_line(ARGV[5] .. id .. ' ')
advance()
store()
return found and {} or 0
