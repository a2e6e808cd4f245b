-- cancelled: the part of settle, extend and pop that tells whether the run of a
-- leased member was cancelled. A mark that was left behind counts for no later run.
local function cancelled(marks, member)
  local fence, id = string.match(member, '^(%d+):%d+:([^\n]*)')
  local last = id and redis.call('HGET', marks, id)
  return last and tonumber(fence) <= (tonumber(last) or 0)
end

