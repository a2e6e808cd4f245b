-- settle: ends deliveries whose leases are held. What was cancelled and is not done,
-- or recurs, is gone. It begins with locks, clock, key, schedule, held, cancelled and
-- traces.
-- KEYS[1] leased zset    member, see key -> lease end, µs
-- KEYS[2] due    zset    id -> due, µs
-- KEYS[3] task   hash    id -> record
-- KEYS[4] dead   zset    id -> died, µs
-- KEYS[5] next   hash    id -> <due>:<record>, or "-"
-- KEYS[6] fail   hash    id -> <failures>:<error>
-- KEYS[7] crash  hash    id -> crashes
-- KEYS[8] stat   hash    counters
-- KEYS[9] wake   channel
-- KEYS[10] conf   hash
-- KEYS[11] cancel hash   id -> highest fence that is cancelled
-- KEYS[12] done, KEYS[13] result, KEYS[14] progress, KEYS[15] wanted, KEYS[16] ended
--         see traces
-- ARGV[1] how many deliveries
-- ARGV[2] and further: their leased members; then 4 for each that is not just
--         acknowledged: its position from 1, action (drop, retry, release, bury,
--         repeat), when it is due again (µs, see clock), <failures>:<error>, or of one
--         that is repeated and was done = and the result; or of one that is
--         acknowledged and has a lock key, a result or is kept: its position, ack, for
--         how long it is kept (µs), result
-- The last ARGV: terms of the locks, of package lock, if any has a lock key
-- returns the positions, from 1, of the deliveries whose lease is not held
local leased, due, task, dead, following, fail, crash, stat, wake, conf, cancel = unpack(KEYS)
local traced = {done = KEYS[12], result = KEYS[13], progress = KEYS[14], wanted = KEYS[15], ended = KEYS[16], task = task}
local n, now = tonumber(ARGV[1]), clock()
-- Most queues have none of these, and one call tells.
local plain = redis.call('EXISTS', following, fail, crash, unpack(KEYS, 11)) == 0
local replaced = not plain and redis.call('HLEN', following) > 0
local failing, crashing = not plain and redis.call('HLEN', fail) > 0, not plain and redis.call('HLEN', crash) > 0
local cancels = not plain and redis.call('HLEN', cancel) > 0
if not plain then traces(traced) end
local marked = replaced or failing or crashing or cancels or traced.waited
for _, set in ipairs({leased, due, dead}) do redis.call('ZCARD', set) end
redis.call('HLEN', task)
local running = tonumber(redis.pcall('HGET', conf, 'running')) -- an error is no limit

local lost, ended, gone, clear, keys = {}, {}, {}, {}, {}
local entries, records, notes, died = {}, {}, {}, {}
local kept, results, ends, stale = {}, {}, {}, {}
local count = {ack = 0, drop = 0, retry = 0, release = 0, bury = 0, ['repeat'] = 0, cancelled = 0}
local function add(list, a, b) list[#list + 1], list[#list + 2] = a, b end

-- finish plans what becomes of a task whose lease is held. If it is over, or this run
-- was to be its last, a run that was done stands, and of any other nothing is left.
local function finish(id, action, at, note, over)
  local score, record
  if replaced then
    local waiting = redis.call('HGET', following, id) or ''
    score, record = string.match(waiting, '^(%d+):(.*)$')
    over = over or waiting == '-'
  end
  if score and #score > 16 then score = nil end -- no time of ours
  local result = action == 'repeat' and string.match(note, '^=(.*)$')
  if over and result then
    action, at, note = 'ack', 0, result
  elseif over and action ~= 'ack' then
    action, note = 'cancelled', ''
  end
  count[action] = count[action] + 1
  if action ~= 'release' or score then clear[#clear + 1] = id end
  if score then
    add(entries, score, id)
    add(records, id, record)
    stale[#stale + 1] = id
  elseif action == 'ack' and tonumber(at) > 0 then
    add(kept, us(now + at), id)
    if note ~= '' then add(results, id, note) end
  elseif action == 'ack' or action == 'drop' or action == 'cancelled' then
    gone[#gone + 1] = id
  elseif action == 'bury' then
    add(died, us(now), id)
    add(notes, id, note)
  else
    add(entries, us(when(at, now)), id)
    if action == 'repeat' then stale[#stale + 1] = id end
    if not result and note ~= '' then add(notes, id, note) end
  end
  if traced.waited and not score and action ~= 'retry' and action ~= 'release' then
    add(ends, id, result and 'ack' or action == 'cancelled' and 'cancel' or action)
    ends[#ends + 1] = result or note
  end
end

local other = {} -- position of what is not acknowledged -> that of its arguments
for i = n + 2, #ARGV - 3, 4 do other[tonumber(ARGV[i])] = i end
local there = held(leased, n)
for i = 1, n do
  local member = ARGV[i + 1]
  if not there[member] then
    lost[#lost + 1] = i
  else
    ended[#ended + 1], there[member] = member, false -- a lease ends once, also within one batch
    local at = other[i]
    if at then
      local fence, was, id, key = parts(member)
      local action = ARGV[at + 1]
      if key then add(keys, key, holding(fence, was, id)) end
      finish(id, action, ARGV[at + 2], ARGV[at + 3], cancels and cancelled(cancel, fence, id))
    else
      local id = string.sub(member, string.find(member, ':', string.find(member, ':', 1, true) + 1, true) + 1)
      if marked then
        finish(id, 'ack', 0, '')
      else
        gone[#gone + 1] = id -- as finish would, in less time
        count.ack = count.ack + 1
      end
    end
  end
end
if #ended == 0 then return lost end

redis.call('ZREM', leased, unpack(ended))
if #gone > 0 then redis.call('HDEL', task, unpack(gone)) end
if #clear > 0 then
  if failing then redis.call('HDEL', fail, unpack(clear)) end
  if crashing then redis.call('HDEL', crash, unpack(clear)) end
  if replaced then redis.call('HDEL', following, unpack(clear)) end
  if cancels then redis.call('HDEL', cancel, unpack(clear)) end
end
if traced.reported then
  for _, list in ipairs({gone, stale}) do
    if #list > 0 then redis.call('HDEL', traced.progress, unpack(list)) end
  end
end
if #notes > 0 then redis.call('HSET', fail, unpack(notes)) end
if #records > 0 then redis.call('HSET', task, unpack(records)) end
if #died > 0 then redis.call('ZADD', dead, unpack(died)) end
if #kept > 0 then
  redis.call('ZADD', traced.done, unpack(kept))
  if #results > 0 then redis.call('HSET', traced.result, unpack(results)) end
end
schedule(due, wake, entries, now)
if running then
  -- Where the limit was reached, pollers sleep until a lease was to end.
  local left = redis.call('ZCARD', leased)
  local first = left < running and left + #ended >= running and redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]
  if first then redis.pcall('PUBLISH', wake, us(math.max(first - now, 0))) end
end
local lockKeys = #keys > 0 and locks(ARGV[#ARGV], now)
for i = 1, #keys, 2 do lockKeys.free(keys[i], keys[i + 1]) end
tell(traced, ends, now)
forget(traced, now, math.max(100, #kept)) -- #kept is twice as many as are kept anew
for action, times in pairs(count) do
  if times > 0 then redis.pcall('HINCRBY', stat, action, times) end
end
return lost
