-- Gives a claim its whole ttl; takes the lock anew if nobody has it, unless the claim was broken. If the
-- value is of a claim that the lock passed to, the lock is that one's from now on.
--
-- KEYS: the lock, the largest token this server knows of, why the claim was broken
-- ARGV: value (empty: by a ticket, take nothing anew), the claim that the lock was taken as, or that the
--       ticket is of, ttl, token (0 for none)
-- Returns {1, ms that were left} if the lock was the claim's, with -1 if someone with the ticket kept it
-- meanwhile; {2} if it was nobody's and is the claim's now; {0} if it is another's; {3, reason} if the
-- claim was broken.
--
-- A value that was kept by a ticket ends with a lone %, which is in no word of it: what is left then
-- tells the holder nothing about the clock of this server.
local MARK = ' %'

-- What the lock was taken as: a claim that it passed to stands before that.
local function taken_as(value)
  return string.match(value, ' %%=(%x+)', 33) or string.sub(value, 1, 32)
end

local function remember()
  if tonumber(ARGV[4]) > tonumber(redis.call('GET', KEYS[2]) or '0') then
    redis.call('SET', KEYS[2], ARGV[4])
  end
end

-- A ticket is of the claim that has the lock now.
local function is_ours(value)
  if ARGV[1] == '' then
    return string.sub(value, 1, 32) == ARGV[2]
  end
  return taken_as(value) == ARGV[2]
end

local value = redis.pcall('GET', KEYS[1])
if type(value) == 'string' and is_ours(value) then
  local has = redis.call('PTTL', KEYS[1])
  local marked = string.sub(value, -#MARK) == MARK
  local left = marked and -1 or has
  -- Where someone has the ticket, never less than the claim has: another may have been told more.
  local span = (marked or ARGV[1] == '') and has > tonumber(ARGV[3]) and has or ARGV[3]
  if value == ARGV[1] or marked and ARGV[1] == '' then
    redis.call('PEXPIRE', KEYS[1], span)
  elseif ARGV[1] == '' then
    redis.call('SET', KEYS[1], value .. MARK, 'PX', span)
  elseif span ~= ARGV[3] then
    redis.call('SET', KEYS[1], ARGV[1] .. MARK, 'PX', span)
    remember()
  else
    -- It voted too late to be told the token, or a ticket was used, or the lock passed on.
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
    remember()
  end
  return {1, left}
end
local broken = redis.call('GET', KEYS[3])
if broken then
  return {3, broken}
end
if value or ARGV[1] == '' then
  return {0}
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])
remember()
return {2}
