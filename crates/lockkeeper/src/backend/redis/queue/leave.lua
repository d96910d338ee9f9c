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
local place, record = place_of(id)
if place then
  redis.call('LREM', KEYS[2], 1, record)
  answer[2] = place
  advance()
end
store()
return answer
