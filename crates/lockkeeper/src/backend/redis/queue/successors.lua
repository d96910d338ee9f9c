-- The claims of a keeper that are next in the queue, up to the first of another keeper or mode: those
-- to which the keeper may hand the name over locally (local_handover.rs). Twelve at most: the keeper
-- asks for more when it has few left.
local function successors_of(keeper)
  local successors, mark = {}, '\n' .. keeper .. '\nx\n'
  for at, record in ipairs(redis.call('LRANGE', KEYS[2], 0, 11)) do
    -- By position: behind the id (32 letters), the token 0, and since (13 digits until the year 2286),
    -- with a line break after each.
    if string.sub(record, 49, 84) ~= mark then break end
    successors[at] = string.sub(record, 1, 32)
  end
  return successors
end
