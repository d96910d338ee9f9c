-- Shows who holds the name; writes nothing.
--
-- Returns { now, { our claims, as noted }, { field, whether it is exclusive, count and ms left of each
-- hold of another library } }; nothing for a key that is no lock.
if foreign then return {} end
local ours, known, theirs = {}, {}, {}
for _, claim in pairs(claims) do
  if holds(claim) then
    ours[#ours + 1] = written(claim)
    known[claim.field] = true
  end
end
-- A field without a note of ours is a hold of another library. One whose time is over is not shown,
-- although Redisson removes it only when it next looks.
for field, count in pairs(lock) do
  local left = not known[field] and left_of(field)
  if left and left ~= 0 then
    theirs[#theirs + 1] = writes(field) and string.sub(field, 1, -7) or field
    theirs[#theirs + 1] = (not mode or writes(field)) and 1 or 0
    theirs[#theirs + 1] = count
    theirs[#theirs + 1] = left
  end
end
return { digits(now), ours, theirs }
