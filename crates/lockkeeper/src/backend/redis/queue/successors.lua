-- The claims of a keeper that are next in line, if they want the name for themselves alone.
local function successors_of(keeper)
  local successors, mark = {}, '\n' .. keeper .. '\nx\n'
  for at, record in ipairs(redis.call('LRANGE', KEYS[2], 0, 11)) do
    -- After the id, 0 and since, which have as many letters in every record for centuries to come.
    if string.sub(record, 49, 84) ~= mark then break end
    successors[at] = string.sub(record, 1, 32)
  end
  return successors
end
