-- cancel: removes a due task, or the replacement that a running one has waiting.
-- It begins with clock and traces.
-- KEYS[1] due    zset  id -> due, µs
-- KEYS[2] task   hash  id -> record
-- KEYS[3] dead   zset  id -> died, µs
-- KEYS[4] next   hash  id -> <due>:<record>
-- KEYS[5] fail   hash  id -> <failures>:<error>
-- KEYS[6] crash  hash  id -> crashes
-- KEYS[7] stat   hash  counters
-- KEYS[8] done, KEYS[9] result, KEYS[10] progress, KEYS[11] wanted, KEYS[12] ended
--         see traces
-- ARGV[1] id
-- ARGV[2] due time that the task must have, µs, or '' for any
-- returns the state found (due, leased, dead, done, missing), or "changed" if the
--         task is due at another time
local due, task, dead, following, fail, crash, stat = unpack(KEYS)
local k = {done = KEYS[8], result = KEYS[9], progress = KEYS[10], wanted = KEYS[11], ended = KEYS[12], task = task}
local id, at = ARGV[1], ARGV[2]
local score = redis.call('ZSCORE', due, id)
if not score then
  if redis.call('ZSCORE', dead, id) then return 'dead' end
  local kept = redis.call('ZSCORE', k.done, id)
  if kept then return tonumber(kept) > clock() and 'done' or 'missing' end
  if redis.call('HEXISTS', task, id) == 0 then return 'missing' end
  if at == '' then redis.call('HDEL', following, id) end
  return 'leased'
end
if at ~= '' and tonumber(at) ~= tonumber(score) then return 'changed' end
for _, key in ipairs({task, fail, crash}) do redis.call('HLEN', key) end
traces(k)
redis.call('ZREM', due, id)
for _, key in ipairs({task, fail, crash}) do redis.call('HDEL', key, id) end
if k.reported then redis.call('HDEL', k.progress, id) end
tell(k, {id, 'cancel', ''}, clock())
redis.pcall('HINCRBY', stat, 'cancelled', 1)
return 'due'
