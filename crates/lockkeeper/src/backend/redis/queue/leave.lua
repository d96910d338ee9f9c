-- ARGV: id. Takes the claim out of the queue, unless it was granted meanwhile.
-- Returns its token; or the place it had, 0 if none.
local id = ARGV[1]
load()
advance()
local answer = { 'left', 0 }
for _, holder in ipairs(holders) do
  if holder.id == id then
    holder.expires, holder.fresh = now + holder.ttl, true
    store()
    return holder.token
  end
end
for place, record in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
  if string.sub(record, 1, #id) == id then
    redis.call('LREM', KEYS[2], 1, record)
    answer[2] = place
    advance()
    break
  end
end
store()
return answer
