-- get: shows one task.
-- KEYS[1] due    zset  id -> due, µs
-- KEYS[2] dead   zset  id -> died, µs
-- KEYS[3] task   hash  id -> record
-- KEYS[4] next   hash  id -> <due>:<record>
-- KEYS[5] fail   hash  id -> <failures>:<error>
-- KEYS[6] crash  hash  id -> crashes
-- KEYS[7] parked zset  id -> due, µs
-- KEYS[8] done   zset  id -> when its record may be dropped, µs
-- KEYS[9] result, KEYS[10] progress  hashes  id -> JSON
-- ARGV[1] id
-- returns {state, time µs or "", record, failures, crashes, replacement, result,
--         progress}, each but the first two nil if absent, or {"missing"}
local id = ARGV[1]
local record = redis.call('HGET', KEYS[3], id)
if not record then return {'missing'} end
local state, score = 'due', redis.call('ZSCORE', KEYS[1], id)
if not score then state, score = 'parked', redis.call('ZSCORE', KEYS[7], id) end
if not score then state, score = 'dead', redis.call('ZSCORE', KEYS[2], id) end
if not score then state, score = 'done', redis.call('ZSCORE', KEYS[8], id) end
if state == 'done' and score and tonumber(score) <= clock() then return {'missing'} end
if not score then state = 'leased' end
local time = score and any(score) or ''
local answer = {state, time, record}
for i, n in ipairs({5, 6, 4, 9, 10}) do answer[3 + i] = redis.call('HGET', KEYS[n], id) end
return answer
