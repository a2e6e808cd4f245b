-- extend: gives leases that are held a later end. Repeating it is harmless.
-- KEYS[1] leased zset  <fence>:<due>:<id> -> lease end, µs
-- ARGV[1] lease, µs from now
-- ARGV[2] and further: leased members
-- returns the positions, from 1, of the members that are not there
local leased = KEYS[1]
local stop = us(clock() + tonumber(ARGV[1]))
local ends = redis.call('ZMSCORE', leased, unpack(ARGV, 2))
local lost, held, later = {}, {}, {}
for i, old in ipairs(ends) do
  if old then
    held[#held + 1] = ARGV[i + 1]
    later[#later + 1], later[#later + 2] = stop, ARGV[i + 1]
  else
    lost[#lost + 1] = i
  end
end
if #held > 0 then
  redis.call('ZREM', leased, unpack(held)) -- first: it may run at the memory limit
  redis.call('ZADD', leased, unpack(later))
end
return lost
