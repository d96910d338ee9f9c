-- Takes a claim out of the queue whose patience is over, unless it was granted meanwhile: then it has
-- the name for its whole ttl.
--
-- ARGV: id, keeper
-- Returns the token; or { left, the place it had, 0 if it was not in the queue }
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
-- Not where another keeper waits for the same claim by now, which was asked for by its id.
if place and read(record).keeper == ARGV[2] then
  redis.call('LREM', KEYS[2], 1, record)
  answer[2] = place
  advance()
end
store()
return answer
