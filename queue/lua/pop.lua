-- pop: leases the tasks that are due, the earliest first. It begins with the
-- guard of the queue's lock, with clock, traces, poll, head and reclaim.
-- KEYS[1]  lock    string, of package lock
-- KEYS[2]  due     zset    id -> due, µs
-- KEYS[3]  leased  zset    <fence>:<due>:<id> -> lease end, µs
-- KEYS[4]  dead    zset    id -> died, µs
-- KEYS[5]  task    hash    id -> record
-- KEYS[6]  next    hash    id -> <due>:<record>
-- KEYS[7]  fail    hash    id -> <failures>:<error>
-- KEYS[8]  crash   hash    id -> crashes
-- KEYS[9]  fence   string
-- KEYS[10] pop     string  <number>:<fence>:<lease end> of the caller's last pop
-- KEYS[11] conf    hash
-- KEYS[12] stat    hash
-- KEYS[13] trial   string  <µs when it ends>:<leased member> of the task on its last chance
-- KEYS[14] done, KEYS[15] result, KEYS[16] progress, KEYS[17] wanted, KEYS[18] ended
--          see traces
-- ARGV[1]  token of the caller's queue lock, or ''
-- ARGV[2]  TTL for a lock found without one, ms
-- ARGV[3]  most tasks to lease
-- ARGV[4]  lease, µs
-- ARGV[5]  crashes in a row that bury a task
-- ARGV[6]  number of this pop among the caller's, which tells one that is late
-- ARGV[7]  fence of the last tasks that reached the caller; newer ones come again
-- returns {"ok", now, µs until there may be more or -1} and, if there are any,
--         {..., fence, leased members, records, failures, crashes};
--         or {"locked", ms left}, {"paused"}, {"stale"}
local k = {due = KEYS[2], leased = KEYS[3], dead = KEYS[4], task = KEYS[5], next = KEYS[6], fail = KEYS[7],
  crash = KEYS[8], fence = KEYS[9], pop = KEYS[10], conf = KEYS[11], stat = KEYS[12], trial = KEYS[13]}
k.left = left
local most, lease, limit = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local stop = us(now + lease)

-- All keys are read before one is written: one of another type fails here.
local fence = tonumber(redis.call('GET', k.fence)) or 0
local trialEnd, trial = string.match(redis.call('GET', k.trial) or '', '^(%d+):(.*)$')
redis.call('ZCARD', k.dead)
for _, hash in ipairs({k.task, k.next}) do redis.call('HLEN', hash) end
local failing, crashing = redis.call('HLEN', k.fail) > 0, redis.call('HLEN', k.crash) > 0

-- again finds what the caller's last pop leased, if that did not reach it, and
-- gives back what is now too much.
local function again()
  local head = {}
  if not last or lastFence == ARGV[7] then return head end
  for _, member in ipairs(redis.call('ZRANGE', k.leased, lastStop, lastStop, 'BYSCORE')) do
    local token, was, id = string.match(member, '^(%d+):(%d+):(.*)$')
    if token == lastFence then
      redis.call('ZREM', k.leased, member)
      if #head < 2 * most then
        head[#head + 1], head[#head + 2] = id, was
      elseif not replace(k, id) then
        redis.call('ZADD', k.due, was, id)
      end
    end
  end
  return head
end

-- try keeps of a head one task that one more crash would bury, unless another is
-- on trial, which lasts until it has settled or a third of its lease is over:
-- else the task that kills workers would take those that run beside it to the
-- dead letter. The others are due again in 100 ms.
local function try(head)
  local ids = names(head)
  local crashes = redis.call('HMGET', k.crash, unpack(ids))
  local busy = trial and tonumber(trialEnd) > now and redis.call('ZSCORE', k.leased, trial)
  local kept, suspect = {}, nil
  for i, id in ipairs(ids) do
    local last = limit > 1 and (tonumber(crashes[i]) or 0) >= limit - 1
    if last and busy then
      redis.call('ZADD', k.due, us(now + 100000), id)
    else
      if last then busy, suspect = true, id end
      kept[#kept + 1], kept[#kept + 2] = id, head[2 * i]
    end
  end
  return kept, suspect
end

-- take removes the head of the due set.
local function take()
  local head = dueHead(k.due, now, most)
  if #head == 0 then return head end
  redis.call('ZREMRANGEBYRANK', k.due, 0, #head / 2 - 1)
  if crashing then return try(head) end
  return head
end

-- grant leases tasks, given as {id, due, ...}, that are in no set. One of them
-- may be on trial.
local function grant(token, head, suspect)
  local ids, members, entries, missing = names(head), {}, {}, {}
  local score, lead -- of the one before
  local records = redis.call('HMGET', k.task, unpack(ids))
  for i, id in ipairs(ids) do
    if head[2 * i] ~= score then
      score = head[2 * i]
      local ours = string.find(score, '^%d+$')
      lead = token .. ':' .. (ours and score or us(tonumber(score) < 0 and now or score)) .. ':'
    end
    local member = lead .. id
    members[i] = member
    if records[i] then
      entries[#entries + 1], entries[#entries + 2] = stop, member
      if id == suspect then
        redis.call('SET', k.trial, us(now + lease / 3) .. ':' .. member, 'PX', math.ceil(lease / 1000))
      end
    else
      missing[#missing + 1] = id
    end
  end
  if #entries > 0 then redis.call('ZADD', k.leased, unpack(entries)) end
  redis.call('SET', k.pop, ARGV[6] .. ':' .. token .. ':' .. stop, 'PX', math.ceil(lease / 1000))
  bury(k, missing, now)
  local failures = failing and redis.call('HMGET', k.fail, unpack(ids)) or {}
  local crashes = crashing and redis.call('HMGET', k.crash, unpack(ids)) or {}
  return {'ok', us(now), 0, token, members, records, failures, crashes}
end

if reclaim(k, limit, now) then failing, crashing = true, true end
local head = again()
if #head > 0 then return grant(lastFence, head) end
local suspect
head, suspect = take()
if #head == 0 then return {'ok', us(now), wait()} end
local token = us(math.max(fence + 1, now))
redis.call('SET', k.fence, token)
local answer = grant(token, head, suspect)
if #head < 2 * most then answer[3] = wait() end
return answer
