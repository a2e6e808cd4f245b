-- reschedule: moves the due time of a due task, parked or not, or of the
-- replacement that a running one has waiting. It begins with clock, key,
-- waiting and schedule.
-- KEYS[1] due    zset  id -> due, µs
-- KEYS[2] task   hash  id -> record
-- KEYS[3] dead   zset  id -> died, µs
-- KEYS[4] next   hash  id -> <due>:<record>
-- KEYS[5] wake   channel
-- KEYS[6] parked zset  id -> due, µs
-- KEYS[7] turns  zset  <lock key>\n<due>\n<id>
-- KEYS[8] blocked zset  lock key -> when to look whether it is free, µs
-- KEYS[9] done   zset  id -> when its record may be dropped, µs
-- ARGV[1] id
-- ARGV[2] when, µs, see clock
-- returns the state found: due, leased, dead, done, missing
local due, task, dead, following, wake, parked, turns, blocked, done = unpack(KEYS)
local id, now = ARGV[1], clock()
local score = us(math.max(when(ARGV[2], now), now))
local waits = redis.call('ZSCORE', parked, id)
if waits or redis.call('ZSCORE', due, id) then
  local key = keyOf(redis.call('HGET', task, id))
  for _, set in ipairs({due, turns, blocked}) do redis.call('ZCARD', set) end
  takeOut(due, parked, turns, id, key, waits) -- first: it may run at the memory limit
  schedule(due, wake, {score, id}, now)
  yield(blocked, wake, key)
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
