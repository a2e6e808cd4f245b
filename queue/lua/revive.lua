-- revive: makes dead tasks due now, their failures and crashes forgotten. It
-- begins with clock and schedule.
-- KEYS[1] dead   zset  id -> died, µs
-- KEYS[2] due    zset  id -> due, µs
-- KEYS[3] fail   hash  id -> <failures>:<error>
-- KEYS[4] crash  hash  id -> crashes
-- KEYS[5] stat   hash  counters
-- KEYS[6] wake   channel
-- ARGV    ids
-- returns how many were dead
local dead, due, fail, crash, stat, wake = unpack(KEYS)
local now = clock()
local scores = redis.call('ZMSCORE', dead, unpack(ARGV))
for _, key in ipairs({fail, crash}) do redis.call('HLEN', key) end
redis.call('ZCARD', due)
local entries, ids = {}, {}
for i, id in ipairs(ARGV) do
  if scores[i] then
    ids[#ids + 1] = id
    entries[#entries + 1], entries[#entries + 2] = us(now), id
  end
end
if #ids == 0 then return 0 end
local count = redis.call('ZREM', dead, unpack(ids))
redis.call('HDEL', fail, unpack(ids))
redis.call('HDEL', crash, unpack(ids))
schedule(due, wake, entries, now)
redis.pcall('HINCRBY', stat, 'revived', count)
return count
