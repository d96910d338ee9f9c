-- Asks for the name: every case. See ask.lua for the arguments and the answers.
local function flagged(at) return string.sub(ARGV[4], at, at) == '1' end
local claim = read(ARGV[1] .. '\n0\n' .. digits(now) .. '\n' .. ARGV[3])
local id, mode = claim.id, claim.mode
local may_queue, again, barging = flagged(2), flagged(3), flagged(4)
load()
last = math.max(last, plausible(tonumber(ARGV[5])))
-- It holds the name already: the answer to an earlier request was lost, or it was granted meanwhile.
-- The answer means "held for the whole ttl", so that is what the claim gets.
-- Or it was asked for by its id at another keeper: it is looked after by the one that asked last.
for _, holder in ipairs(holders) do
  if holder.id == id and holder.expires > now and holder.owner ~= '' then
    if holder.mode ~= mode or holder.ttl ~= claim.ttl then return { 'other', holder.mode, holder.ttl } end
    holder.keeper = claim.keeper
    holder.expires, holder.fresh = now + holder.ttl, true
    advance()
    store()
    return holder.token
  end
end
-- It may wait already: then it keeps its place.
if again then
  local place, record = place_of(id)
  if place then
    local waiting = read(record)
    if waiting.mode ~= mode or waiting.ttl ~= claim.ttl then return { 'other', waiting.mode, waiting.ttl } end
    if waiting.keeper ~= claim.keeper then
      waiting.keeper = claim.keeper
      redis.call('LSET', KEYS[2], place - 1, written(waiting))
    end
    keep_waiting(claim.keeper)
    advance()
    for _, holder in ipairs(holders) do
      if holder.id == id then
        -- Granted just now: for its whole ttl, as above, and not only for LIFE.
        holder.expires, holder.fresh = now + holder.ttl, true
        store()
        return holder.token
      end
    end
    store()
    return { 'queued', place, until_next(), digits(stamp()) }
  end
end
-- Those before it first, except that a free name is left to newcomers where they may go first.
if not (barging and form == 'G') then advance() end

-- The owner holds the name: it enters again, with the same token, if what it holds covers what it asks
-- for (Mode::covers). An owner that was not named (its id is the claim's own) never does.
claim.expires, claim.fresh = now + claim.ttl, true
for _, holder in ipairs(holders) do
  if holder.owner == claim.owner and holder.owner ~= holder.id then
    local covers = holder.mode == 'x' or string.sub(holder.mode, 1, 1) == string.sub(mode, 1, 1)
    -- Permits: not a smaller number, which more than so many may hold already.
    local has, wants = tonumber(string.sub(holder.mode, 2)), tonumber(string.sub(mode, 2))
    if has and wants and wants < has then covers = false end
    if covers then
      claim.token = holder.token
      holders[#holders + 1] = claim
    end
    store()
    return covers and claim.token or { 'uncovered', holder.mode }
  end
end
-- Nobody before it: it holds the name from now on.
if fits(mode) and (barging or redis.call('EXISTS', KEYS[2]) == 0) then
  claim.token = next_token()
  holders[#holders + 1] = claim
  store()
  return claim.token
end
-- To the end of the queue. The list is written before the rest: at maxmemory Redis refuses the first
-- write of a script and lets it go on after that.
if may_queue then
  local place = redis.call('RPUSH', KEYS[2], written(claim))
  keep_waiting(claim.keeper)
  store()
  return { 'queued', place, until_next(), digits(stamp()) }
end
store()
return { 'busy' }
