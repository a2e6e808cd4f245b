-- cancel: removes a due task, or the replacement that a running one has waiting. Of
-- a running one that recurs it can make this run the last.
-- KEYS[1] due    zset  id -> due, µs
-- KEYS[2] task   hash  id -> record
-- KEYS[3] dead   zset  id -> died, µs
-- KEYS[4] next   hash  id -> <due>:<record>, or "-" if nothing follows
-- KEYS[5] fail   hash  id -> <failures>:<error>
-- KEYS[6] crash  hash  id -> crashes
-- KEYS[7] stat   hash  counters
-- ARGV[1] id
-- ARGV[2] due time that the task must have, µs, or '' for any
-- ARGV[3] the record of a running task whose last run this is to be, or ''
-- returns {the state found (due, leased, dead, missing), or "changed" if the task
--         is due at another time, and the record of a leased one}
local due, task, dead, following, fail, crash, stat = unpack(KEYS)
local id, at, last = ARGV[1], ARGV[2], ARGV[3]
local score = redis.call('ZSCORE', due, id)
if not score then
  if redis.call('ZSCORE', dead, id) then return {'dead'} end
  local record = redis.call('HGET', task, id)
  if not record then return {'missing'} end
  if at == '' then redis.call('HDEL', following, id) end
  if record == last then redis.call('HSET', following, id, '-') end
  return {'leased', record}
end
if at ~= '' and tonumber(at) ~= tonumber(score) then return {'changed'} end
for _, key in ipairs({task, fail, crash}) do redis.call('HLEN', key) end
redis.call('ZREM', due, id)
for _, key in ipairs({task, fail, crash}) do redis.call('HDEL', key, id) end
redis.pcall('HINCRBY', stat, 'cancelled', 1)
return {'due'}
