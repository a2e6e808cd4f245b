-- key: the parts of a task that know its lock key.

-- keyOf is the lock key in a record, or nil.
local function keyOf(record) return string.match(record or '', '^\2([^\n]+)\n') end

-- parts takes a leased member apart: <fence>:<due>:<id>, or of a task with a lock
-- key <fence>:<due>@<key>\n<id>.
local function parts(member)
  local fence, due, mark, rest = string.match(member, '^(%d+):(%d+)([:@])(.*)$')
  if mark ~= '@' then return fence, due, rest end
  local key, id = string.match(rest, '^([^\n]*)\n(.*)$')
  return fence, due, id, key
end

-- holding is what stands in the lock of a leased task's key.
local function holding(fence, due, id) return fence .. ':task ' .. id .. '#' .. due .. '/' end

-- yield has a key looked at for which tasks may be parked: another that had its
-- turn is gone.
local function yield(blocked, wake, key)
  if key and redis.call('ZADD', blocked, 'XX', 'LT', 'CH', us(clock()), key) == 1 then redis.pcall('PUBLISH', wake, '0') end
end

-- turn is the member of a parked task in turns.
local function turn(key, due, id)
  local digits = us(due)
  return key .. '\n' .. string.rep('0', 16 - #digits) .. digits .. '\n' .. id
end

