-- Shows who holds and who waits; writes nothing, so that a look changes nothing.
--
-- ARGV: 1 to leave out those that wait
-- Returns { now, { ms left and record of each holder }, { the records of those that wait } }
load()
local held, waiting = {}, {}
for _, holder in ipairs(holders) do
  if holder.expires > now then
    held[#held + 1] = holder.expires - now
    held[#held + 1] = written(holder)
  end
end
-- Waiters of a dead keeper are shown no more, although the next request is what removes them.
for _, record in ipairs(ARGV[1] == '1' and {} or redis.call('LRANGE', KEYS[2], 0, -1)) do
  if alive_until(read(record).keeper) > now then waiting[#waiting + 1] = record end
end
return { digits(now), held, waiting }
