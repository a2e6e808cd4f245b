-- enqueue: takes tasks of different ids, or answers what is there already.
-- KEYS[1] due    zset    id -> due, µs
-- KEYS[2] task   hash    id -> record
-- KEYS[3] dead   zset    id -> died, µs
-- KEYS[4] next   hash    id -> <due>:<record>
-- KEYS[5] fail   hash    id -> <failures>:<error>
-- KEYS[6] crash  hash    id -> crashes
-- KEYS[7] stat   hash    counters
-- KEYS[8] wake   channel
-- ARGV    4 a task: id, when (µs, see clock), record, conflict (keep, replace, earliest)
-- returns a list, one entry a task: its due time if it was added, else
--         {"kept" or "replaced", state found, due µs or ""}
local due, task, dead, following, fail, crash, stat, wake = unpack(KEYS)
local now = clock()
local ids = {}
for i = 1, #ARGV, 4 do ids[#ids + 1] = ARGV[i] end
local known = redis.call('HMGET', task, unpack(ids))
redis.call('ZCARD', due) -- a key of another type fails here, before any write

local answers, entries, records, nexts, clear = {}, {}, {}, {}, {}
local function put(id, score, record)
  entries[#entries + 1], entries[#entries + 2] = score, id
  records[#records + 1], records[#records + 2] = id, record
end

-- conflict answers for an id that is in the queue: its state, its due time (or
-- that of its replacement), and whether the new task is to win.
local function conflict(id, score, mode)
  local old = redis.call('ZSCORE', due, id)
  local died, waiting = redis.call('ZSCORE', dead, id), redis.call('HGET', following, id)
  for _, key in ipairs({fail, crash}) do redis.call('HLEN', key) end
  if died and not old then return 'dead', '', mode ~= 'keep' end
  local state = old and 'due' or 'leased'
  old = old or string.match(waiting or '', '^(%d+):')
  if old then old = us(old) end
  local wins = mode == 'replace' or mode == 'earliest' and (not old or tonumber(score) < tonumber(old))
  return state, old or '', wins
end

for i, id in ipairs(ids) do
  local at, record, mode = ARGV[4 * i - 2], ARGV[4 * i - 1], ARGV[4 * i]
  local score = when(at, now)
  if tonumber(score) < now then score = us(now) end
  if not known[i] then
    put(id, score, record)
    answers[i] = score
  else
    local state, old, wins = conflict(id, score, mode)
    if not wins then
      answers[i] = {'kept', state, old}
    else
      answers[i] = {'replaced', state, score}
      if state == 'leased' then
        nexts[#nexts + 1], nexts[#nexts + 2] = id, score .. ':' .. record
      else
        put(id, score, record)
        clear[#clear + 1] = id
      end
    end
  end
end
-- What the memory limit refuses is written first: nothing has happened then.
if #nexts > 0 then redis.call('HSET', following, unpack(nexts)) end
if #records > 0 then
  redis.call('HSET', task, unpack(records))
  schedule(due, wake, entries)
  redis.pcall('HINCRBY', stat, 'enqueued', #records / 2)
end
if #clear > 0 then
  redis.call('ZREM', dead, unpack(clear))
  redis.call('HDEL', fail, unpack(clear))
  redis.call('HDEL', crash, unpack(clear))
end
return answers
