-- extend: gives leases that are held a later end, also of runs that were
-- cancelled. Repeating it is harmless. It begins with locks, clock, key and
-- cancelled.
-- KEYS[1] leased zset  member, see key -> lease end, µs
-- KEYS[2] cancel hash  id -> highest fence that is cancelled
-- ARGV[1] lease, µs from now
-- ARGV[2] terms of the locks, of package lock, or '' if no member has a lock key
-- ARGV[3] and further: leased members
-- returns the positions, from 1, of the members that are not there, or whose lock
--         key another has, and of those whose run was cancelled
local leased, cancel = unpack(KEYS)
local stop = us(clock() + tonumber(ARGV[1]))
local ends = redis.call('ZMSCORE', leased, unpack(ARGV, 3))
local lockKeys = ARGV[2] ~= '' and locks(ARGV[2])
local cancels = redis.call('HLEN', cancel) > 0
local lost, ended, held, later = {}, {}, {}, {}

-- keep reports whether a leased task has its lock key, if it has one, for longer.
local function keep(fence, due, id, key)
  return not key or lockKeys.keep(key, holding(fence, due, id), math.ceil(ARGV[1] / 1000))
end

for i, old in ipairs(ends) do
  local member = ARGV[i + 2]
  local fence, due, id, key
  if lockKeys or cancels then fence, due, id, key = parts(member) end
  if old and keep(fence, due, id, key) then
    held[#held + 1] = member
    later[#later + 1], later[#later + 2] = stop, member
    if cancels and cancelled(cancel, fence, id) then ended[#ended + 1] = i end
  else
    lost[#lost + 1] = i
  end
end
if #held > 0 then
  redis.call('ZREM', leased, unpack(held)) -- first: it may run at the memory limit
  redis.call('ZADD', leased, unpack(later))
end
return {lost, ended}
