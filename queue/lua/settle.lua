-- settle: ends deliveries whose leases are held. It begins with clock, schedule,
-- held and traces.
-- KEYS[1] leased zset    <fence>:<due>:<id> -> lease end, µs
-- KEYS[2] due    zset    id -> due, µs
-- KEYS[3] task   hash    id -> record
-- KEYS[4] dead   zset    id -> died, µs
-- KEYS[5] next   hash    id -> <due>:<record>
-- KEYS[6] fail   hash    id -> <failures>:<error>
-- KEYS[7] crash  hash    id -> crashes
-- KEYS[8] stat   hash    counters
-- KEYS[9] wake   channel
-- KEYS[10] done, KEYS[11] result, KEYS[12] progress, KEYS[13] wanted, KEYS[14] ended
--         see traces
-- ARGV[1] how many deliveries
-- ARGV[2] and further: their leased members; then 4 for each that is not
--         acknowledged: its position from 1, action (drop, retry, release,
--         bury), when it is due again (µs, see clock), <failures>:<error>; also for
--         one that is, but has a result or is kept: its position, ack, for how long
--         it is kept (µs), result
-- returns the positions, from 1, of the deliveries whose lease is not held
local leased, due, task, dead, following, fail, crash, stat, wake = unpack(KEYS)
local left = {done = KEYS[10], result = KEYS[11], progress = KEYS[12], wanted = KEYS[13], ended = KEYS[14], task = task}
local n, now = tonumber(ARGV[1]), clock()
local replaced = redis.call('HLEN', following) > 0
local failing, crashing = redis.call('HLEN', fail) > 0, redis.call('HLEN', crash) > 0
traces(left)
local marked = replaced or failing or crashing or left.waited
for _, set in ipairs({leased, due, dead}) do redis.call('ZCARD', set) end
redis.call('HLEN', task)

local lost, ended, gone, clear = {}, {}, {}, {}
local entries, records, notes, died = {}, {}, {}, {}
local kept, results, ends, stale = {}, {}, {}, {}
local count = {ack = 0, drop = 0, retry = 0, release = 0, bury = 0}
local function add(list, a, b) list[#list + 1], list[#list + 2] = a, b end

-- finish plans what becomes of a task whose lease is held.
local function finish(id, action, at, note)
  count[action] = count[action] + 1
  local score, record
  if replaced then score, record = string.match(redis.call('HGET', following, id) or '', '^(%d+):(.*)$') end
  if score and #score > 16 then score = nil end -- no time of ours
  if action ~= 'release' or score then clear[#clear + 1] = id end
  if score then
    add(entries, score, id)
    add(records, id, record)
    stale[#stale + 1] = id
  elseif action == 'ack' and tonumber(at) > 0 then
    add(kept, us(now + at), id)
    if note ~= '' then add(results, id, note) end
  elseif action == 'ack' or action == 'drop' then
    gone[#gone + 1] = id
  elseif action == 'bury' then
    add(died, us(now), id)
    add(notes, id, note)
  else
    add(entries, us(when(at, now)), id)
    if action == 'retry' then add(notes, id, note) end
  end
  if left.waited and not score and (action == 'ack' or action == 'drop' or action == 'bury') then
    add(ends, id, action)
    ends[#ends + 1] = note
  end
end

local other = {} -- position of what is not acknowledged -> that of its arguments
for i = n + 2, #ARGV, 4 do other[tonumber(ARGV[i])] = i end
local there = held(leased, n)
for i = 1, n do
  local member = ARGV[i + 1]
  if not there[member] then
    lost[#lost + 1] = i
  else
    ended[#ended + 1], there[member] = member, false -- a lease ends once, also within one batch
    local id = string.sub(member, string.find(member, ':', string.find(member, ':', 1, true) + 1, true) + 1)
    local at = other[i]
    if at then
      finish(id, ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
    elseif marked then
      finish(id, 'ack', 0, '')
    else
      gone[#gone + 1] = id -- as finish would, in less time
      count.ack = count.ack + 1
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
end
if left.reported then
  for _, list in ipairs({gone, stale}) do
    if #list > 0 then redis.call('HDEL', left.progress, unpack(list)) end
  end
end
if #notes > 0 then redis.call('HSET', fail, unpack(notes)) end
if #records > 0 then redis.call('HSET', task, unpack(records)) end
if #died > 0 then redis.call('ZADD', dead, unpack(died)) end
if #kept > 0 then
  redis.call('ZADD', left.done, unpack(kept))
  if #results > 0 then redis.call('HSET', left.result, unpack(results)) end
end
schedule(due, wake, entries, now)
tell(left, ends, now)
forget(left, now, math.max(100, #kept)) -- #kept is twice as many as are kept anew
for action, times in pairs(count) do
  if times > 0 then redis.pcall('HINCRBY', stat, action, times) end
end
return lost
