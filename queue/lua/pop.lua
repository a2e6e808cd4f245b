-- pop: leases the tasks that are due, the earliest first. It begins with the guard of
-- the queue's lock, with clock, poll, locks, traces, room, soon, head, key, cancelled,
-- reclaim and park, and goes on with again, deal, grant and answer.
-- KEYS[1]  lock    string, of package lock
-- KEYS[2]  due     zset    id -> due, µs
-- KEYS[3]  leased  zset    member, see key -> lease end, µs
-- KEYS[4]  task    hash    id -> record
-- KEYS[5]  fence   string
-- KEYS[6]  pop     string  <number>:<fence>:<lease end> of the caller's last pop
-- KEYS[7]  stat    hash
-- KEYS[8]  wake    channel
-- KEYS[9]  dead    zset    id -> died, µs; this and what follows most queues do not have
-- KEYS[10] next    hash    id -> <due>:<record>, or "-"
-- KEYS[11] fail    hash    id -> <failures>:<error>
-- KEYS[12] crash   hash    id -> crashes
-- KEYS[13] conf    hash
-- KEYS[14] trial   string  <µs when it ends>:<leased member> of the task on its last chance
-- KEYS[15] parked  zset    id -> due, µs, of tasks that wait for their lock key
-- KEYS[16] turns   zset    <lock key>\n<due>\n<id>, of the same
-- KEYS[17] blocked zset    lock key -> when to look whether it is free, µs
-- KEYS[18] cancel  hash    id -> highest fence that is cancelled
-- KEYS[19] to KEYS[23]  see traces
-- ARGV[1]  token of the caller's queue lock, or ''
-- ARGV[2]  TTL for a lock found without one, ms
-- ARGV[3]  most tasks to lease
-- ARGV[4]  lease, µs
-- ARGV[5]  crashes in a row that bury a task
-- ARGV[6]  number of this pop among the caller's, which tells one that is late
-- ARGV[7]  fence of the last tasks that reached the caller; newer ones come again
-- ARGV[8]  terms of the locks, of package lock
-- returns {"ok", now, µs until there may be more or -1} and, if there are any,
--         {..., fence, leased members, records, failures, crashes};
--         or {"locked", ms left}, {"paused"}, {"stale"}
local k = {due = KEYS[2], leased = KEYS[3], task = KEYS[4], fence = KEYS[5], pop = KEYS[6], stat = KEYS[7],
  wake = KEYS[8], dead = KEYS[9], next = KEYS[10], fail = KEYS[11], crash = KEYS[12], trial = KEYS[14],
  parked = KEYS[15], turns = KEYS[16], blocked = KEYS[17], cancel = KEYS[18], traced = traced}
local adopt, most, lease, limit = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local stop = us(now + lease)

-- lockKeys are the locks of tasks, where there are any.
local lockTable
local function lockKeys()
  lockTable = lockTable or locks(ARGV[8], now)
  return lockTable
end

-- All keys are read before one is written: one of another type fails here.
local fence = redis.call('GET', k.fence)
redis.call('HLEN', k.task)
local failing, crashing, trialEnd, trial = false, false, nil, nil
if not plain then
  trialEnd, trial = string.match(redis.call('GET', k.trial) or '', '^(%d+):(.*)$')
  for _, set in ipairs({k.dead, k.parked, k.turns}) do redis.call('ZCARD', set) end
  for _, hash in ipairs({k.next, k.cancel}) do redis.call('HLEN', hash) end
  failing, crashing = redis.call('HLEN', k.fail) > 0, redis.call('HLEN', k.crash) > 0
end

-- Leases that ran out end first.
local over = lapses <= now and reclaim(k, lockKeys, limit, now) or 0
if over > 0 then failing, crashing, plain = true, true, false end

