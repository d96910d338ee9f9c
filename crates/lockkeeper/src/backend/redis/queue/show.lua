-- ARGV: 1 to leave out those who wait. Returns now, the holders as ms left and record, and the
-- records of those who wait.
load()
local held, waiting = {}, {}
for _, holder in ipairs(holders) do
  if holder.expires > now then
    held[#held + 1] = holder.expires - now
    held[#held + 1] = written(holder)
  end
end
for _, record in ipairs(ARGV[1] == '1' and {} or redis.call('LRANGE', KEYS[2], 0, -1)) do
  if alive_until(read(record).keeper) > now then waiting[#waiting + 1] = record end
end
return { digits(now), held, waiting }
