local id, mode, ttl, owner, keeper = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local may_queue, again, barging = ARGV[7] == '1', ARGV[8] == '1', ARGV[9] == '1'
load()
for _, holder in ipairs(holders) do
  if holder.id == id and holder.expires > now then
    holder.expires, holder.fresh = now + holder.ttl, true
    advance()
    store()
    return holder.token
  end
end
if again then
  for place, record in ipairs(redis.call('LRANGE', KEYS[2], 0, -1)) do
    if string.sub(record, 1, #id) == id then
      keep_waiting(keeper)
      advance()
      store()
      for _, holder in ipairs(holders) do
        if holder.id == id then return holder.token end
      end
      return { 'queued', place, until_next(), digits(stamp()) }
    end
  end
end
if not (barging and form == 'G') then advance() end

local claim = { id = id, since = now, keeper = keeper, mode = mode, ttl = ttl, owner = owner,
  rest = ARGV[6], expires = now + ttl, fresh = true }
for _, holder in ipairs(holders) do
  if holder.owner == owner then
    local covers = holder.mode == 'x' or string.sub(holder.mode, 1, 1) == string.sub(mode, 1, 1)
    if covers then
      claim.token = holder.token
      holders[#holders + 1] = claim
    end
    store()
    return covers and claim.token or { 'uncovered', holder.mode }
  end
end
if fits(mode) and (barging or redis.call('EXISTS', KEYS[2]) == 0) then
  claim.token = next_token()
  holders[#holders + 1] = claim
  store()
  return claim.token
end
if may_queue then
  claim.token = 0
  local place = redis.call('RPUSH', KEYS[2], written(claim))
  keep_waiting(keeper)
  store()
  return { 'queued', place, until_next(), digits(stamp()) }
end
store()
return { 'busy' }
