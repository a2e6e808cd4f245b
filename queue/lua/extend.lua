-- extend: gives leases that are held a later end, also of runs that were
-- cancelled. Repeating it is harmless. It begins with clock and cancelled.
-- KEYS[1] leased zset  <fence>:<due>:<id> -> lease end, µs
-- KEYS[2] cancel hash  id -> highest fence that is cancelled
-- ARGV[1] lease, µs from now
-- ARGV[2] and further: leased members
-- returns the positions, from 1, of the members that are not there, and of those
--         whose run was cancelled
local leased, cancel = unpack(KEYS)
local stop = us(clock() + tonumber(ARGV[1]))
local ends = redis.call('ZMSCORE', leased, unpack(ARGV, 2))
local cancels = redis.call('HLEN', cancel) > 0
local lost, ended, held, later = {}, {}, {}, {}
for i, old in ipairs(ends) do
  if old then
    held[#held + 1] = ARGV[i + 1]
    later[#later + 1], later[#later + 2] = stop, ARGV[i + 1]
    if cancels and cancelled(cancel, ARGV[i + 1]) then ended[#ended + 1] = i end
  else
    lost[#lost + 1] = i
  end
end
if #held > 0 then
  redis.call('ZREM', leased, unpack(held)) -- first: it may run at the memory limit
  redis.call('ZADD', leased, unpack(later))
end
return {lost, ended}
