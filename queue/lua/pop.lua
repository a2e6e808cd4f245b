-- pop: leases the tasks that are due, the earliest first. It begins with the
-- guard of the queue's lock, with locks, clock, traces, room, poll, head, key,
-- cancelled, reclaim and park, and goes on with again, grant and deal.
-- KEYS[1]  lock    string, of package lock
-- KEYS[2]  due     zset    id -> due, µs
-- KEYS[3]  leased  zset    member, see key -> lease end, µs
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
-- KEYS[14] parked  zset    id -> due, µs, of tasks that wait for their lock key
-- KEYS[15] turns   zset    <lock key>\n<due>\n<id>, of the same
-- KEYS[16] blocked zset    lock key -> when to look whether it is free, µs
-- KEYS[17] cancel  hash    id -> highest fence that is cancelled
-- KEYS[18] done, KEYS[19] result, KEYS[20] progress, KEYS[21] wanted, KEYS[22] ended
--          see traces
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
local k = {due = KEYS[2], leased = KEYS[3], dead = KEYS[4], task = KEYS[5], next = KEYS[6], fail = KEYS[7],
  crash = KEYS[8], fence = KEYS[9], pop = KEYS[10], conf = KEYS[11], stat = KEYS[12], trial = KEYS[13],
  parked = KEYS[14], turns = KEYS[15], blocked = KEYS[16], cancel = KEYS[17], traced = traced}
local adopt, most, lease, limit = ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local stop = us(now + lease)

-- lockKeys are the locks of tasks, where there are any.
local lockTable
local function lockKeys()
  lockTable = lockTable or locks(ARGV[8], now)
  return lockTable
end

-- All keys are read before one is written: one of another type fails here.
redis.call('GET', k.fence)
redis.call('HLEN', k.task)
local failing, crashing, trialEnd, trial = false, false, nil, nil
if not plain then
  trialEnd, trial = string.match(redis.call('GET', k.trial) or '', '^(%d+):(.*)$')
  for _, set in ipairs({k.dead, k.parked, k.turns}) do redis.call('ZCARD', set) end
  for _, hash in ipairs({k.next, k.cancel}) do redis.call('HLEN', hash) end
  failing, crashing = redis.call('HLEN', k.fail) > 0, redis.call('HLEN', k.crash) > 0
end

