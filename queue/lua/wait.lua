-- wait: looks whether tasks have ended, and notes that those that have not are
-- waited for. It begins with clock and traces.
-- KEYS[1] due       zset  id -> due, µs
-- KEYS[2] dead      zset  id -> died, µs
-- KEYS[3] task      hash  id -> record
-- KEYS[4] fail      hash  id -> <failures>:<error>
-- KEYS[5] crash     hash  id -> crashes
-- KEYS[6] to KEYS[10]   see traces
-- ARGV    id, and what this script answered to the last look for the same task; at
--         the first look "first"
-- returns for each {"waiting", what to give at the next look}, {action, result or
--         error}, {"crash"} or {"missing"}
local due, dead, task, fail, crash = unpack(KEYS)
local k = traceKeys(6, task)
local now, ids, answer, waiting, entries = clock(), {}, {}, {}, {}
for _, hash in ipairs({fail, crash}) do redis.call('HLEN', hash) end
traces(k)
for i = 1, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
local known = redis.call('HMGET', k.ended, unpack(ids))
local died, kept = redis.call('ZMSCORE', dead, unpack(ids)), redis.call('ZMSCORE', k.done, unpack(ids))
local waits = redis.call('ZMSCORE', due, unpack(ids))

-- look tells how a task stands. An end that was there at the first look is that
-- of an earlier task.
local function look(i, id, before)
  local at, action, text = string.match(known[i] or '', '^(%d+):(%a+):(.*)$')
  if at and before ~= 'first' and before ~= at then return {action, text} end
  if before == 'first' then before = at or '' end
  if kept[i] and tonumber(kept[i]) > now then return {'ack', redis.call('HGET', k.result, id) or ''} end
  if died[i] then
    if redis.call('HEXISTS', crash, id) == 1 then return {'crash'} end
    return {'bury', redis.call('HGET', fail, id) or ''}
  end
  if kept[i] or not waits[i] and redis.call('HEXISTS', task, id) == 0 then return {'missing'} end
  waiting[#waiting + 1] = id
  entries[#entries + 1], entries[#entries + 2] = us(now + patience), id
  return {'waiting', before}
end

for i, id in ipairs(ids) do answer[i] = look(i, id, ARGV[2 * i]) end
local old = redis.call('ZRANGE', k.wanted, '-inf', us(now), 'BYSCORE', 'LIMIT', 0, 2 * #ids + 100) -- more than come
if #old > 0 then
  redis.call('ZREM', k.wanted, unpack(old))
  redis.call('HDEL', k.ended, unpack(old))
end
if #waiting > 0 then
  redis.call('ZREM', k.wanted, unpack(waiting)) -- first: it may run at the memory limit
  redis.call('ZADD', k.wanted, unpack(entries))
  redis.call('PEXPIRE', k.wanted, 2 * patience / 1000)
end
return answer
