-- The queue of one name: what the full scripts share. Each of them loads the holders, changes them,
-- lets those at the head of the queue in (advance), and stores the holders.
--
-- KEYS: the lock, the queue, the state.
--
-- The lock is a string whose first letter says how things are:
--   F<token>   free, and what the last token was
--   G<token>   free, while some wait (only where newcomers may go first)
--   X<record>  held by one exclusive claim, nobody waits; Y<record> the same, some wait
--   M<token>   held by several claims, which are in the state
-- The letter is also the version of all that is stored of the name: these are version 1. What a later
-- version stores, and this one must not touch, begins with V and the number of that version.
-- The key's expiry is the claim's. Y may be said where nobody waits any more, X never where some do.
--
-- A record is id, token, since, keeper, mode, ttl, owner, identity, note, a line each.
--   owner: empty if the claim was released and stays for its shortest time; the claim's own id if no
--     owner was named. Nobody enters such a claim again, so that its keeper may hand the name over to
--     its next claim before Redis hears of it.
--   since: 0 if the token tells it.
--
-- The queue is a list of records, in order. It and the state expire after KEPT without a heartbeat.
--
-- The state is a hash:
--   h<id>       a holder's expiry and record, where there are several
--   a<keeper>   until when that keeper counts as alive
--   b<id>       until when it is kept, and why a claim was broken
--   b<request>  the same, and how many claims a request broke
--   t           the last token, where it is ahead of the clock

-- How the letters follow one another:
--
--           ask            ask by another           release, some wait
--   F, none ───► X ───────────────────────► Y ─────────────────────────► Y (of the next)
--    ▲           │ release                  │ release, nobody waits      │
--    └───────────┴──────────────────────────┴────────────────────────────┘
--   shared claims and permits: F ──► M (the holders are in the state) ──► F, or Y for an exclusive one
--   where newcomers may go first: Y ── release ──► G ── ask by anyone ──► Y
--
-- Every script that finds the lock in another form than it can handle quickly goes the long way: load,
-- change, advance, store.

-- How long a keeper counts as alive after a heartbeat, in ms; LIFE in wait.rs.
local LIFE = 2000
-- How long things are kept that are needed only for a late request, in ms.
local KEPT = 60000
-- Tokens left out before the next one, for claims that got the name by local hand-over and that Redis
-- has not heard of; more than UNSEEN in local_handover.rs.
local ROOM = 16
-- No token is believed that is further ahead of the clock than a day, in microseconds, wherever it
-- comes from: tokens above it would be all that could be given until the clock has caught up.
local FAR = 86400000000
local CHANNEL = '@PREFIX@keeper:'

local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)

-- A Lua number would be written as 1.7e+15.
local function digits(number) return string.format('%.0f', number) end

-- The token, or 0 if it is not to be believed.
local function plausible(token) return token and token <= micros + FAR and token or 0 end

-- Whatever is none of ours, or of a later version, holds the name: nothing is done with it.
local function refuse(value) error(string.find(value, '^V%d') and 'LATER' or 'FOREIGN', 0) end

-- A record, taken apart.
local function read(record)
  local at, to, id, token, since, keeper, mode, ttl, owner =
    string.find(record, '^(%x+)\n(%d+)\n(%d+)\n(%x+)\n(%w+)\n(%d+)\n([^\n]*)\n')
  if not at then refuse(record) end
  return { id = id, token = tonumber(token), since = tonumber(since), keeper = keeper,
    mode = mode, ttl = tonumber(ttl), owner = owner, rest = string.sub(record, to + 1) }
end

local function written(claim)
  return table.concat({ claim.id, digits(claim.token), digits(claim.since), claim.keeper,
    claim.mode, digits(claim.ttl), claim.owner, claim.rest }, '\n')
end

-- No claim has more than its ttl left, unless the clock went back: without this bound a claim that is
-- renewed no more would stay until the clock has caught up.
local function bounded(holder)
  if holder.owner ~= '' and holder.expires > now + holder.ttl then
    holder.expires, holder.fresh = now + holder.ttl, true
  end
  return holder
end

-- The holders in order of their tokens; the last token; the lock's letter; whether holders are in the
-- state.
local holders, last, form, was_several = {}, 0, '', false

-- Reads the name, with holders that may have expired: advance drops them.
local function load()
  local value = redis.call('GET', KEYS[1])
  if not value then
    last = plausible(tonumber(redis.call('HGET', KEYS[3], 't') or 0))
    return
  end
  form = string.sub(value, 1, 1)
  local rest = string.sub(value, 2)
  if form == 'X' or form == 'Y' then
    local holder = read(rest)
    holder.expires = now + redis.call('PTTL', KEYS[1])
    holders[1] = bounded(holder)
    last = plausible(holder.token)
  elseif (form == 'F' or form == 'G' or form == 'M') and tonumber(rest) then
    last = plausible(tonumber(rest))
    if form == 'M' then
      was_several = true
      local fields = redis.call('HGETALL', KEYS[3])
      for i = 1, #fields, 2 do
        if string.sub(fields[i], 1, 1) == 'h' then
          local to = string.find(fields[i + 1], '\n', 1, true)
          local holder = read(string.sub(fields[i + 1], to + 1))
          holder.expires = tonumber(string.sub(fields[i + 1], 1, to - 1))
          holder.field = fields[i]
          holders[#holders + 1] = bounded(holder)
        end
      end
      table.sort(holders, function(one, other)
        if one.token ~= other.token then return one.token < other.token end
        return one.since < other.since
      end)
    end
  else
    refuse(value)
  end
end

-- Takes out the holders for which `gone` is true.
local function drop(gone)
  local kept = {}
  for _, holder in ipairs(holders) do
    if gone(holder) then
      if holder.field then redis.call('HDEL', KEYS[3], holder.field) end
    else
      kept[#kept + 1] = holder
    end
  end
  holders = kept
end

-- The place of a claim in the queue, and its record. In parts: claims that leave, for want of patience,
-- are mostly at the head.
local function place_of(id)
  for from = 0, redis.call('LLEN', KEYS[2]) - 1, 128 do
    for at, record in ipairs(redis.call('LRANGE', KEYS[2], from, from + 127)) do
      if string.sub(record, 1, #id) == id then return from + at, record end
    end
  end
end

-- Takes claims out of the queue, given their ids with a blank behind each; returns how many there were.
local function leave_line(ids)
  local found, _, wanted = {}, string.gsub(ids, ' ', ' ')
  for from = 0, redis.call('LLEN', KEYS[2]) - 1, 128 do
    for _, record in ipairs(redis.call('LRANGE', KEYS[2], from, from + 127)) do
      local id = string.match(record, '^%x+')
      if id and string.find(ids, id .. ' ', 1, true) then found[#found + 1] = record end
    end
    if #found == wanted then break end
  end
  for _, record in ipairs(found) do redis.call('LREM', KEYS[2], 1, record) end
  return #found
end

-- Whether a claim of this mode fits beside the holders. Permits: the claims of one owner share a token
-- and take one place, and the smallest number of permits that any of them names is the limit.
local function fits(mode)
  if mode == 'x' then return #holders == 0 end
  local limit, tokens, places = tonumber(string.sub(mode, 2)), {}, 0
  for _, holder in ipairs(holders) do
    if string.sub(holder.mode, 1, 1) ~= string.sub(mode, 1, 1) then return false end
    if limit then
      limit = math.min(limit, tonumber(string.sub(holder.mode, 2)))
      if not tokens[holder.token] then
        tokens[holder.token] = true
        places = places + 1
      end
    end
  end
  return not limit or places < limit
end

-- Makes a key live for `span` ms at least.
local function extend(key, span)
  if redis.call('PTTL', key) < span then redis.call('PEXPIRE', key, digits(span)) end
end

-- Above every token given before: by the clock, and by the counter, should the clock have gone back;
-- and above those of local hand-overs that Redis has not heard of yet.
local function next_token()
  last = math.max(last + ROOM, micros)
  return last
end

-- Bounded, as claims are, should the clock have gone back.
local function alive_until(keeper)
  return math.min(tonumber(redis.call('HGET', KEYS[3], 'a' .. keeper) or 0), now + LIFE)
end

-- The keeper that sent this request, if it is to hear of its own grants by the answer; and those
-- grants, id and token of each.
local here, told = '', {}

-- Drops holders that have expired and waiters of dead keepers, grants the name to those at the head that
-- fit, and tells each its token.
--
-- A grant lasts only as long as the keeper's last heartbeat at first, until the claim is renewed: so the
-- dead claims of one keeper cost the others that time once, and not a ttl each.
--
-- Messages are sent by pcall: should one be refused, the waiter finds out at its next heartbeat, whereas
-- a script that failed here would have done half of its work.
local function advance()
  drop(function(holder) return holder.expires <= now end)
  while true do
    local head = redis.call('LINDEX', KEYS[2], 0)
    if not head then return end
    local claim = read(head)
    -- The keeper that sent this request is alive, whatever its last heartbeat was.
    local alive = claim.keeper == here and now + LIFE or alive_until(claim.keeper)
    if alive <= now then
      redis.call('LPOP', KEYS[2])
      redis.call('HDEL', KEYS[3], 'a' .. claim.keeper)
    elseif fits(claim.mode) then
      redis.call('LPOP', KEYS[2])
      claim.token, claim.since, claim.fresh = next_token(), now, true
      claim.expires = math.min(now + claim.ttl, alive)
      holders[#holders + 1] = claim
      if claim.keeper == here then
        told[#told + 1], told[#told + 2] = claim.id, digits(claim.token)
      else
        redis.pcall('PUBLISH', CHANNEL .. claim.keeper, 
          'granted ' .. claim.id .. ' ' .. digits(claim.token) .. ' ' .. KEYS[1])
      end
    else
      return
    end
  end
end

-- Notes a heartbeat.
local function keep_waiting(keeper)
  -- The list first: at maxmemory Redis lets a script go on once it has written.
  redis.call('PEXPIRE', KEYS[2], KEPT)
  redis.call('HSET', KEYS[3], 'a' .. keeper, digits(now + LIFE))
  extend(KEYS[3], KEPT)
end

-- Writes the name. One exclusive holder is in the lock's own key, which alone has to be read and
-- written then; several are in the state, of which only those that changed are written.
local function store()
  if last > micros then
    -- The clock went back, or there were several grants at once: the counter is kept until the clock
    -- has caught up.
    redis.pcall('HSET', KEYS[3], 't', digits(last))
    extend(KEYS[3], math.floor(last / 1000) - now + KEPT)
  end
  local first = holders[1]
  if #holders == 1 and first.mode == 'x' then
    if first.field then redis.call('HDEL', KEYS[3], first.field) end
    local letter = redis.call('LLEN', KEYS[2]) > 0 and 'Y' or 'X'
    redis.call('SET', KEYS[1], letter .. written(first), 'PX', digits(first.expires - now))
  elseif first then
    local longest = 0
    for _, holder in ipairs(holders) do
      longest = math.max(longest, holder.expires - now)
      if not holder.field or holder.fresh then
        redis.call('HSET', KEYS[3], 'h' .. holder.id, digits(holder.expires) .. '\n' .. written(holder))
      end
    end
    redis.call('SET', KEYS[1], 'M' .. digits(last), 'PX', digits(longest))
    extend(KEYS[3], longest)
  else
    local letter = redis.call('EXISTS', KEYS[2]) == 1 and 'G' or 'F'
    -- If memory is full, the key goes instead: nobody is kept from releasing, and the next token
    -- depends on the clock alone.
    local kept = redis.pcall('SET', KEYS[1], letter .. digits(last), 'PX', KEPT)
    if kept.err then redis.call('DEL', KEYS[1]) end
  end
end

-- In how many ms the first holder may expire; after LIFE a waiter looks anyway.
local function until_next()
  local soonest = LIFE
  for _, holder in ipairs(holders) do soonest = math.min(soonest, holder.expires - now) end
  return soonest
end

-- A number below every token that is granted from now on, and not below any granted before.
local function stamp() return math.max(last, micros) end
