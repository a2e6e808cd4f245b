-- reschedule: moves the due time of a due task, or of the replacement that a
-- running one has waiting. It begins with clock and schedule.
-- KEYS[1] due    zset  id -> due, µs
-- KEYS[2] task   hash  id -> record
-- KEYS[3] dead   zset  id -> died, µs
-- KEYS[4] next   hash  id -> <due>:<record>
-- KEYS[5] wake   channel
-- KEYS[6] done   zset  id -> when its record may be dropped, µs
-- ARGV[1] id
-- ARGV[2] when, µs, see clock
-- returns the state found: due, leased, dead, done, missing
local due, task, dead, following, wake, done = unpack(KEYS)
local id, now = ARGV[1], clock()
local score = us(math.max(when(ARGV[2], now), now))
if redis.call('ZSCORE', due, id) then
  redis.call('ZREM', due, id) -- first: it may run at the memory limit
  schedule(due, wake, {score, id}, now)
  return 'due'
end
if redis.call('ZSCORE', dead, id) then return 'dead' end
local kept = redis.call('ZSCORE', done, id)
if kept then return tonumber(kept) > now and 'done' or 'missing' end
local record = string.match(redis.call('HGET', following, id) or '', '^%d+:(.*)$')
if record then
  redis.call('HDEL', following, id) -- as above
  redis.call('HSET', following, id, score .. ':' .. record)
end
return redis.call('HEXISTS', task, id) == 1 and 'leased' or 'missing'
