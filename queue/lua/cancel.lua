-- cancel: removes a due task, parked or not, or the replacement that a running one
-- has waiting. It may cancel that run as well: the mark holds for runs up to the last
-- fence given, for none to come. Or it makes that run of a recurring task the last. It
-- begins with clock, key, waiting and traces.
-- KEYS[1]  due     zset   id -> due, µs
-- KEYS[2]  task    hash   id -> record
-- KEYS[3]  dead    zset   id -> died, µs
-- KEYS[4]  next    hash   id -> <due>:<record>, or "-" if nothing follows
-- KEYS[5]  fail    hash   id -> <failures>:<error>
-- KEYS[6]  crash   hash   id -> crashes
-- KEYS[7]  stat    hash   counters
-- KEYS[8]  parked  zset   id -> due, µs
-- KEYS[9]  turns   zset   <lock key>\n<due>\n<id>
-- KEYS[10] blocked zset   lock key -> when to look whether it is free, µs
-- KEYS[11] wake    channel
-- KEYS[12] cancel  hash   id -> highest fence that is cancelled
-- KEYS[13] fence   string
-- KEYS[14] to KEYS[18]  see traces
-- ARGV[1] id
-- ARGV[2] due time that the task must have, µs, or '' for any
-- ARGV[3] "run" cancels a run as well; the record of a running task makes this run the
--         last; or ''
-- returns {the state found (due, leased, dead, done, missing), or "changed" if the
--         task is due at another time, and the record of one that runs on}
local due, task, dead, following, fail, crash, stat, parked, turns, blocked, wake, cancel, fence = unpack(KEYS)
local k = traceKeys(14, task)
local id, at, also = unpack(ARGV)
local waits = redis.call('ZSCORE', parked, id)
local score = redis.call('ZSCORE', due, id) or waits
if not score then
  if redis.call('ZSCORE', dead, id) then return {'dead'} end
  local kept = redis.call('ZSCORE', k.done, id)
  if kept then return {tonumber(kept) > clock() and 'done' or 'missing'} end
  local record = redis.call('HGET', task, id)
  if not record then return {'missing'} end
  if also == 'run' then
    local last = string.match(redis.call('GET', fence) or '', '^%d+$') or '9007199254740991' -- any, if the counter is lost
    redis.call('HLEN', cancel)
    redis.call('HDEL', following, id) -- first: it may run at the memory limit
    redis.call('HSET', cancel, id, last)
    redis.pcall('PUBLISH', wake, 'cancel ' .. last .. ' ' .. id)
  elseif at == '' then
    redis.call('HDEL', following, id)
    if record == also then redis.call('HSET', following, id, '-') end
    return {'leased', record}
  end
  return {'leased'}
end
if at ~= '' and tonumber(at) ~= tonumber(score) then return {'changed'} end
for _, key in ipairs({fail, crash}) do redis.call('HLEN', key) end
local key = keyOf(redis.call('HGET', task, id))
for _, set in ipairs({turns, blocked}) do redis.call('ZCARD', set) end
traces(k)
takeOut(due, parked, turns, id, key, waits)
for _, key in ipairs({task, fail, crash}) do redis.call('HDEL', key, id) end
if k.reported then redis.call('HDEL', k.progress, id) end
yield(blocked, wake, key)
tell(k, {id, 'cancel', ''}, clock())
redis.pcall('HINCRBY', stat, 'cancelled', 1)
return {'due'}
