-- purge: removes dead tasks for good, the oldest first.
-- KEYS[1] dead   zset  id -> died, µs
-- KEYS[2] task   hash  id -> record
-- KEYS[3] fail   hash  id -> <failures>:<error>
-- KEYS[4] crash  hash  id -> crashes
-- KEYS[5] stat   hash  counters
-- KEYS[6] progress hash id -> JSON
-- ARGV[1] age, µs: those that died before now less this
-- ARGV[2] most tasks to remove
-- returns how many were removed
local dead, task, fail, crash, stat, progress = unpack(KEYS)
local before = us(clock() - tonumber(ARGV[1]))
local ids = redis.call('ZRANGE', dead, '-inf', before, 'BYSCORE', 'LIMIT', 0, ARGV[2])
if #ids == 0 then return 0 end
for _, key in ipairs({task, fail, crash, progress}) do redis.call('HLEN', key) end
redis.call('ZREM', dead, unpack(ids))
for _, key in ipairs({task, fail, crash, progress}) do redis.call('HDEL', key, unpack(ids)) end
redis.pcall('HINCRBY', stat, 'purged', #ids)
return #ids
