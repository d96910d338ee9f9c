-- Takes the name if the claim fits beside those that hold it: it is free, the claim's owner writes it,
-- or it is read and the claim wants to read.
--
--   held by            a claim to write                    a claim to read
--   nobody             granted, mode write                 granted, mode read
--   its own writer     granted, counted with it            granted, beside it
--   its own readers    uncovered: it would wait for itself granted
--   other readers      busy                                granted
--   another writer     busy                                busy
--   an RLock           busy                                busy
--
-- ARGV: …, id, mode (x or s), ttl, field of the owner, and the rest of the note
-- Returns the token, which is that of the owner's other claims if there are any; or
--   { busy, ms until it may be free }
--   { uncovered }: the owner reads, and asks to write
--   { other }: the claim with this id is in the other mode
local id, wanted, ttl, owner = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
settle()
finish()
-- Withdrawn: this request was overtaken by its own withdrawal.
if others['w' .. id] then return { 'busy', 0 } end

-- If it is noted already, an earlier answer was lost: it gets its whole ttl again.
local claim = claims['c' .. id]
-- Or it was asked for by its id at another keeper.
if claim and (string.sub(claim.field, -6) == ':write') ~= (wanted == 'x') then return { 'other' } end
if not claim then
  local reads, also_writes = lock[owner], lock[owner .. ':write']
  if wanted == 'x' and reads and not also_writes then return { 'uncovered' } end
  local is_free = not mode and next(lock) == nil
  if not (is_free or also_writes or (wanted == 's' and mode == 'read')) then
    return { 'busy', redis.call('PTTL', KEYS[1]) }
  end
  -- The same token for all claims of an owner: they are one hold to the resource that checks it.
  claim = { since = now, field = wanted == 'x' and owner .. ':write' or owner, rest = ARGV[7] }
  for _, other in pairs(claims) do
    if other.field == owner or other.field == owner .. ':write' then claim.token = other.token end
  end
  if not claim.token then
    -- Above every token given before, by the counter; and by the clock, in microseconds, should the
    -- counter be lost.
    claim.token = math.max(last + 1, micros)
    redis.call('HSET', KEYS[2], 't', digits(claim.token))
  end
  if is_free then
    mode = wanted == 'x' and 'write' or 'read'
    redis.call('HSET', KEYS[1], 'mode', mode)
  end
end
claim.expires = now + ttl
note('c' .. id, claim)
finish()
return claim.token
