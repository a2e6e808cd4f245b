-- cancelled: the part of settle, extend and pop that tells whether the run of a
-- leased task was cancelled. A mark that was left behind counts for no later run.
local function cancelled(marks, fence, id)
  local last = id and redis.call('HGET', marks, id)
  return last and tonumber(fence) <= (tonumber(last) or 0)
end

