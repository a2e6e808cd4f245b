-- settle: ends deliveries whose leases are held. What was cancelled and is not done,
-- or recurs, is gone. It begins with locks, clock, key, schedule, held, cancelled and
-- traces, and goes on with plan and land.
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
-- KEYS[12] to KEYS[16]  see traces
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
local traced = traceKeys(12, task)
local n, now = tonumber(ARGV[1]), clock()
-- Most queues have none of these, and one call tells.
local plain = redis.call('EXISTS', following, fail, crash, unpack(KEYS, 10)) == 0
local replaced = not plain and redis.call('HLEN', following) > 0
local failing, crashing = not plain and redis.call('HLEN', fail) > 0, not plain and redis.call('HLEN', crash) > 0
local cancels = not plain and redis.call('HLEN', cancel) > 0
if not plain then traces(traced) end
local marked = replaced or failing or crashing or cancels or traced.waited
local running = not plain and tonumber(redis.pcall('HGET', conf, 'running')) -- an error is no limit

