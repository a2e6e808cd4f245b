-- stats: counts a queue's tasks by state.
-- KEYS[1] due    zset  id -> due, µs
-- KEYS[2] leased zset  member, see key -> lease end, µs
-- KEYS[3] dead   zset  id -> died, µs
-- KEYS[4] conf   hash
-- KEYS[5] stat   hash  counters
-- KEYS[6] lock   string, of package lock
-- KEYS[7] parked zset  id -> due, µs
-- KEYS[8] done   zset  id -> when its record may be dropped, µs
-- returns {now µs, due, ready, leased, dead, earliest due µs or "",
--         {paused, running, rate, burst}, each nil if it is not set, locked 0/1,
--         {counter, value, ...}, parked, done}
local now = us(clock())
local first = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
return {
  now,
  redis.call('ZCARD', KEYS[1]),
  redis.call('ZCOUNT', KEYS[1], '-inf', now),
  redis.call('ZCARD', KEYS[2]),
  redis.call('ZCARD', KEYS[3]),
  first and any(first) or '',
  redis.call('HMGET', KEYS[4], 'paused', 'running', 'rate', 'burst'),
  redis.call('EXISTS', KEYS[6]),
  redis.call('HGETALL', KEYS[5]),
  redis.call('ZCARD', KEYS[7]),
  redis.call('ZCOUNT', KEYS[8], '(' .. now, '+inf'),
}
