local function flagged(at) return string.sub(ARGV[4], at, at) == '1' end
local claim = read(ARGV[1] .. '\n0\n' .. digits(now) .. '\n' .. ARGV[3])
local id, mode = claim.id, claim.mode
local may_queue, again, barging = flagged(2), flagged(3), flagged(4)
load()
last = math.max(last, plausible(tonumber(ARGV[5])))
for _, holder in ipairs(holders) do
  if holder.id == id and holder.expires > now then
    holder.expires, holder.fresh = now + holder.ttl, true
    advance()
    store()
    return holder.token
  end
end
if again then
  local place = place_of(id)
  if place then
    keep_waiting(claim.keeper)
    advance()
    for _, holder in ipairs(holders) do
      if holder.id == id then
        -- Whoever asks is told that it has it for its whole time.
        holder.expires, holder.fresh = now + holder.ttl, true
        store()
        return holder.token
      end
    end
    store()
    return { 'queued', place, until_next(), digits(stamp()) }
  end
end
if not (barging and form == 'G') then advance() end

claim.expires, claim.fresh = now + claim.ttl, true
for _, holder in ipairs(holders) do
  if holder.owner == claim.owner and holder.owner ~= holder.id then
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
  local place = redis.call('RPUSH', KEYS[2], written(claim))
  keep_waiting(claim.keeper)
  store()
  return { 'queued', place, until_next(), digits(stamp()) }
end
store()
return { 'busy' }
