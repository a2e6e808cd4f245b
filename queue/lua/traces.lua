-- traces: the part of scripts about what a task leaves behind when it ends, in keys
-- that follow each other:
--   done     zset  id -> when the kept record may be dropped, µs
--   result   hash  id -> JSON
--   progress hash  id -> JSON
--   wanted   zset  id that is waited for -> when that, or its entry in ended, is
--                  forgotten, µs
--   ended    hash  id -> <when, µs>:<action>:<result or error>; also the channel that
--                  tells of it

-- traceKeys are the keys from the first on, and task.
local function traceKeys(first, task)
  local done, result, progress, wanted, ended = unpack(KEYS, first, first + 4)
  return {done = done, result = result, progress = progress, wanted = wanted, ended = ended, task = task}
end

-- traces notes which there are, in one call if there are none, and fails if one is
-- of another type.
local function traces(k)
  if redis.call('EXISTS', k.done, k.wanted, k.result, k.progress, k.ended) == 0 then return k end
  k.kept, k.waited = redis.call('ZCARD', k.done) > 0, redis.call('ZCARD', k.wanted) > 0
  k.reported = redis.call('HLEN', k.progress) > 0
  for _, hash in ipairs({k.result, k.ended, k.task}) do redis.call('HLEN', hash) end
  return k
end

-- forget drops some records that were kept long enough, and reports whether there
-- may be more.
local function forget(k, now, most)
  local ids = k.kept and redis.call('ZRANGE', k.done, '-inf', us(now), 'BYSCORE', 'LIMIT', 0, most) or {}
  if #ids == 0 then return false end
  redis.call('ZREM', k.done, unpack(ids))
  for _, hash in ipairs({k.task, k.result, k.progress}) do redis.call('HDEL', hash, unpack(ids)) end
  return #ids == most
end

-- tell keeps for a minute how tasks have ended, of those that are waited for, and
-- says which they are. ends is {id, action, result or error, ...}. The script has
-- written before: so it may at the memory limit.
local patience = 60000000
local function tell(k, ends, now)
  local ids, names, entries, notes = {}, {}, {}, {}
  for i = 1, #ends, 3 do ids[#ids + 1] = ends[i] end
  if #ids == 0 or not k.waited then return end
  for i, wanted in ipairs(redis.call('ZMSCORE', k.wanted, unpack(ids))) do
    if wanted then
      names[#names + 1] = ids[i]
      entries[#entries + 1], entries[#entries + 2] = us(now + patience), ids[i]
      notes[#notes + 1], notes[#notes + 2] = ids[i], us(now) .. ':' .. ends[3 * i - 1] .. ':' .. ends[3 * i]
    end
  end
  if #names == 0 then return end
  redis.call('ZADD', k.wanted, unpack(entries))
  redis.call('HSET', k.ended, unpack(notes))
  for _, key in ipairs({k.wanted, k.ended}) do redis.call('PEXPIRE', key, 2 * patience / 1000) end
  redis.pcall('PUBLISH', k.ended, table.concat(names, '\n'))
end

