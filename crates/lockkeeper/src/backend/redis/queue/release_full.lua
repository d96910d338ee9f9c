-- Gives a claim back and lets the next in: every case. See release.lua for the arguments and answers.
local id, stay = ARGV[1], tonumber(ARGV[2])
local flag, barging = string.sub(ARGV[3], 1, 1), string.sub(ARGV[3], 2, 2) == '1'
local queued, repeated = flag == '1', flag == '2'
local before = ARGV[5] or ''
here = string.sub(ARGV[3], 3)
load()
-- A predecessor is on record in its place: what was handed over to this claim, it gives back.
for _, holder in ipairs(holders) do
  if string.find(before, holder.id .. ' ', 1, true) then
    if holder.field then redis.call('HDEL', KEYS[3], holder.field) end
    holder.id, holder.field, holder.token = id, nil, tonumber(ARGV[4])
    last = math.max(last, plausible(holder.token))
  end
end
-- Whether the claim was held. It is if its time is not over, also if it only stays from now on.
local found = 0
for _, holder in ipairs(holders) do
  if holder.id == id and holder.expires > now then
    found = 1
    if stay > 0 then
      if holder.field then redis.call('HDEL', KEYS[3], holder.field) end
      -- Nobody's from now on, under an id that no claim has.
      holder.id, holder.field, holder.owner = '0' .. id, nil, ''
      holder.expires, holder.fresh = now + stay, true
    end
  end
end
if stay == 0 then drop(function(holder) return holder.id == id end) end
-- A claim that is withdrawn may be in the queue; so may predecessors that were handed the name before
-- Redis knew.
if queued or before ~= '' then leave_line(before .. id .. ' ') end
if found == 0 and not queued then
  local broken = redis.call('HGET', KEYS[3], 'b' .. id)
  if broken then return string.sub(broken, string.find(broken, '\n', 1, true) + 1) end
  -- What was released before leaves a token behind, for a while.
  if repeated and form ~= '' then found = 1 end
  if before == '' then return found end
end
-- Where newcomers may go first, the name stays free and the head is only told to try; otherwise those
-- at the head get it.
if barging and #holders == 0 then
  local head = redis.call('LINDEX', KEYS[2], 0)
  if head then
    local claim = read(head)
    redis.pcall('PUBLISH', CHANNEL .. claim.keeper, 'try ' .. claim.id)
  end
else
  advance()
end
store()
if told[1] then
  if found == 0 then told[#told + 1] = 0 end
  return told
end
return found
