-- enqueue: takes tasks of different ids, or answers what is there already. It
-- begins with clock, key and conflict.
-- KEYS[1] due    zset    id -> due, µs
-- KEYS[2] task   hash    id -> record
-- KEYS[3] dead   zset    id -> died, µs
-- KEYS[4] next   hash    id -> <due>:<record>, or "-"
-- KEYS[5] fail   hash    id -> <failures>:<error>
-- KEYS[6] crash  hash    id -> crashes
-- KEYS[7] stat   hash    counters
-- KEYS[8] wake   channel
-- KEYS[9] parked zset    id -> due, µs
-- KEYS[10] turns zset    <lock key>\n<due>\n<id>
-- KEYS[11] blocked zset  lock key -> when to look whether it is free, µs
-- KEYS[12] done  zset    id -> when its record may be dropped, µs
-- KEYS[13] result, KEYS[14] progress  hashes  id -> JSON
-- KEYS[15] cancel hash  id -> highest fence that is cancelled
-- ARGV    groups of tasks that are due together: size, when (µs, see clock),
--         conflict (keep, replace, earliest, changed: replace unless the record is
--         the same, but keep the time of what is overdue or to be retried), then id
--         and record of each task
-- returns {the due time of each group} and, for each task that was in the queue,
--         {position from 1, "kept", "replaced" or, if it was done, "added", state
--         found, due µs or ""}
local due, task, dead, following, fail, crash, stat, wake, parked, turns, blocked, done, result, progress = unpack(KEYS)
local now, first = clock(), math.huge
local dues, ids, records, entries, groups, n, arg = {}, {}, {}, {}, {}, 0, 1
while ARGV[arg] do
  local last = arg + 2 + 2 * ARGV[arg]
  local at = when(ARGV[arg + 1], now)
  if ARGV[arg + 2] ~= 'changed' then at = math.max(at, now) end -- a tick keeps its time if it has just passed
  local score = us(at)
  first = math.min(first, at)
  dues[#dues + 1] = score
  groups[#groups + 1] = {first = n + 1, last = n + tonumber(ARGV[arg]), score = score, mode = ARGV[arg + 2]}
  for i = arg + 3, last, 2 do
    n = n + 1
    ids[n] = ARGV[i]
    records[2 * n - 1], records[2 * n] = ARGV[i], ARGV[i + 1]
    entries[2 * n - 1], entries[2 * n] = score, ARGV[i]
  end
  arg = last + 1
end
local known = redis.call('HMGET', task, unpack(ids))
local earlier = redis.call('ZCOUNT', due, '-inf', us(first)) -- a key of another type fails here, before any write

local answer, nexts, clear, left, moved, duplicates = {dues}, {}, {}, {}, {}, false
for i = 1, n do
  if known[i] then
    duplicates = true
    break
  end
end
if duplicates then
  local k, all = {due = due, task = task, dead = dead, next = following, fail = fail, crash = crash, parked = parked}, records
  k.done, k.result, k.progress, k.cancel, k.now = done, result, progress, KEYS[15], now
  for _, set in ipairs({turns, blocked}) do redis.call('ZCARD', set) end
  records, entries = {}, {} -- of what is new or takes the place of a task that is not running
  for _, group in ipairs(groups) do
    for i = group.first, group.last do
      local id, score, state, old, wins, key, place = ids[i], group.score, 'missing', '', true, nil, nil
      if known[i] then
        state, old, wins, score, key, place = conflict(k, id, score, group.mode, all[2 * i], known[i])
        local word = state == 'done' and 'added' or wins and 'replaced' or 'kept'
        if state ~= 'missing' then answer[#answer + 1] = {i, word, state, wins and score or old} end
      end
      if wins and state == 'leased' then
        nexts[#nexts + 1], nexts[#nexts + 2] = id, score .. ':' .. all[2 * i]
      elseif wins then
        records[#records + 1], records[#records + 2] = id, all[2 * i]
        entries[#entries + 1], entries[#entries + 2] = score, id
        if known[i] then clear[#clear + 1] = id end
        left[#left + 1], moved[#moved + 1] = key, place or nil
      end
    end
  end
end

-- What the memory limit refuses is written first: nothing has happened then.
if #nexts > 0 then redis.call('HSET', following, unpack(nexts)) end
if #records > 0 then
  redis.call('HSET', task, unpack(records))
  redis.call('ZADD', due, unpack(entries))
  if earlier == 0 then redis.pcall('PUBLISH', wake, us(math.max(first - now, 0))) end
  redis.pcall('HINCRBY', stat, 'enqueued', #records / 2)
end
if #clear > 0 then
  for _, set in ipairs({dead, done, parked}) do redis.call('ZREM', set, unpack(clear)) end
  for _, hash in ipairs({fail, crash, result, progress}) do redis.call('HDEL', hash, unpack(clear)) end
end
if #moved > 0 then redis.call('ZREM', turns, unpack(moved)) end
for _, key in ipairs(left) do yield(blocked, wake, key) end
return answer
