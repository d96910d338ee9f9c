-- One name in Redisson's layout: what all scripts of the recipe share.
--
-- KEYS: the lock, our notes on it, the channel of locks, the channel of read-write locks
-- ARGV[1]: the command to publish with; ARGV[2]: what the keys of readers begin with; the rest is each
--          script's own
--
-- The lock is as Redisson's read-write lock keeps it: a hash with
--   mode            read or write; a hash without it is an RLock of Redisson
--   <owner>         how often an owner reads
--   <owner>:write   how often an owner writes
-- and for every time an owner reads, a key <owner>:rwlock_timeout:<n> that lives for as long as that may
-- last: a reader without one is over.
--
-- The notes are a hash, ours alone:
--   t       the last token
--   c<id>   a claim
--   l<id>   a claim that was released and stays for its shortest time
--   b<id>   until when it is kept, and why a claim was broken
--   w<id>   until when it is kept: a claim that was withdrawn, and must not come after all
--
-- An owner that writes, entered again, and reads besides:
--
--   lock    mode = write, o:write = 2, o = 1     with {name}:o:rwlock_timeout:1 for the reader
--   notes   c1 = …o:write…, c2 = …o:write…, c3 = …o…, t = 1789540332123456
--
-- It gives c2 back: o:write is counted anew, and is 1. It gives c1 back: nobody writes any more, so mode
-- becomes read and those that wait are woken. Should c1 be given back once more, there is no note, and
-- nothing is done.
--
-- Invariants:
-- - A claim holds while it is noted, its time is not over and its field is in the lock.
-- - The count of a field of ours is the number of such claims. Nothing is added to a count or taken off:
--   it is counted anew, so that a request that is sent twice is carried out once.
-- - A field is only ever made together with a note, after the notes of an earlier time are removed: no
--   note can speak of a later field of the same name.

-- How long things are kept that are needed only for a late request, in ms.
local KEPT = 60000
local FOREIGN = redis.error_reply('FOREIGN the key of the lock holds something else')

local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)

local function digits(number) return string.format('%.0f', number) end

-- What is in the key now; `foreign` if that is no lock. Numbers that someone keeps in a hash are told
-- from a lock by their expiry: no lock is without one.
local kind = redis.call('TYPE', KEYS[1]).ok
local foreign = kind ~= 'none' and kind ~= 'hash'
local lock, mode = {}, nil
if kind == 'hash' then
  local fields = redis.call('HGETALL', KEYS[1])
  for i = 1, #fields, 2 do lock[fields[i]] = fields[i + 1] end
  mode, lock.mode = lock.mode, nil
  foreign = mode and mode ~= 'read' and mode ~= 'write'
  for _, count in pairs(lock) do foreign = foreign or not tonumber(count) end
  foreign = foreign or redis.call('PTTL', KEYS[1]) == -1
end

-- A claim is written as expiry, token, since, field, the channel of its keeper, owner, identity, note,
-- a line each.
local function written(claim)
  return table.concat({ digits(claim.expires), digits(claim.token), digits(claim.since),
    claim.field, claim.rest }, '\n')
end

local function read(record)
  local expires, token, since, field, rest =
    string.match(record, '^(%d+)\n(%d+)\n(%d+)\n([^\n]*)\n(.*)$')
  return { expires = tonumber(expires), token = tonumber(token), since = tonumber(since),
    field = field, rest = rest }
end

local claims, others, last = {}, {}, 0
do
  local fields = redis.call('HGETALL', KEYS[2])
  for i = 1, #fields, 2 do
    local letter = string.sub(fields[i], 1, 1)
    if letter == 't' then
      last = tonumber(fields[i + 1])
    elseif letter == 'c' or letter == 'l' then
      claims[fields[i]] = read(fields[i + 1])
    else
      others[fields[i]] = fields[i + 1]
    end
  end
end

-- Whether a noted claim holds the name.
local function holds(claim) return claim.expires > now and lock[claim.field] end

local function writes(field) return string.sub(field, -6) == ':write' end

-- The key that keeps a reader alive, for the time it entered as number `number`.
local function timeout_key(field, number)
  return ARGV[2] .. field .. ':rwlock_timeout:' .. number
end

-- For how many ms a field may last: a writer as long as the lock, a reader as long as its longest key.
local function left_of(field)
  if not mode or writes(field) then return redis.call('PTTL', KEYS[1]) end
  local longest = 0
  for number = 1, tonumber(lock[field]) do
    longest = math.max(longest, redis.call('PTTL', timeout_key(field, number)))
  end
  return longest
end

-- The fields whose count may have changed, for finish.
local touched = {}

-- Notes a claim, and puts its field in the lock.
local function note(name, claim)
  claims[name] = claim
  lock[claim.field] = lock[claim.field] or 0
  touched[claim.field] = true
  redis.call('HSET', KEYS[2], name, written(claim))
end

-- Removes the note of a claim.
local function strike(name)
  touched[claims[name].field] = true
  claims[name] = nil
  redis.call('HDEL', KEYS[2], name)
end

-- Removes the notes of claims that do not hold any more, and those that are not needed any more.
local function settle()
  for name, claim in pairs(claims) do
    if not holds(claim) then strike(name) end
  end
  for name, text in pairs(others) do
    if tonumber(string.match(text, '^%d+')) <= now then
      others[name] = nil
      redis.call('HDEL', KEYS[2], name)
    end
  end
end

-- Writes the count of a field anew, with the keys of its readers; whether it was there to be counted.
local function recount(field)
  local before = tonumber(lock[field])
  if not before then return false end
  local count, longest = 0, 0
  for _, claim in pairs(claims) do
    if claim.field == field then
      count = count + 1
      longest = math.max(longest, claim.expires - now)
    end
  end
  if count == 0 then
    lock[field] = nil
    redis.call('HDEL', KEYS[1], field)
  else
    lock[field] = count
    redis.call('HSET', KEYS[1], field, count)
  end
  if not writes(field) then
    for number = 1, count do
      redis.call('SET', timeout_key(field, number), '1', 'PX', digits(longest))
    end
    for number = count + 1, before do redis.call('DEL', timeout_key(field, number)) end
  end
  return true
end

-- Tells everyone that may wait, as Redisson does it: all of them after a writer, otherwise one of each
-- client.
local function wake(was)
  redis.call(ARGV[1], KEYS[3], '0')
  redis.call(ARGV[1], KEYS[4], was == 'write' and '1' or '0')
end

-- Nobody holds the name any more.
local function free()
  local was = mode
  lock, mode = {}, nil
  redis.call('DEL', KEYS[1])
  -- The last token is kept for a while; after that the clock alone makes them grow.
  redis.call('PEXPIRE', KEYS[2], KEPT)
  wake(was)
end

-- Brings the lock into line with the notes, and its expiry into line with the longest claim. A writer
-- that leaves readers of its own behind turns the lock into one that is read.
local function finish()
  local changed, writer, longest = false, false, 0
  for field in pairs(touched) do changed = recount(field) or changed end
  touched = {}
  if not changed then return end
  for field in pairs(lock) do
    writer = writer or writes(field)
    if mode == 'read' then longest = math.max(longest, left_of(field)) end
  end
  if next(lock) == nil then return free() end
  if mode == 'write' and not writer then
    -- Redisson says nothing here, and readers wait on; a message too many does no harm.
    mode = 'read'
    redis.call('HSET', KEYS[1], 'mode', mode)
    wake('write')
  end
  for _, claim in pairs(claims) do longest = math.max(longest, claim.expires - now) end
  if longest <= 0 then return free() end
  redis.call('PEXPIRE', KEYS[1], digits(longest))
  redis.call('PEXPIRE', KEYS[2], digits(math.max(longest, KEPT)))
end
