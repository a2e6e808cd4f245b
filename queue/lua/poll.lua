-- poll: the part of pop that answers a poll for nothing, as most are when a hint
-- has brought all workers at once. The keys and arguments are those of pop, which
-- goes on with plain, wait, and last, lastFence and lastStop of the caller's last pop.
local last, lastFence, lastStop = string.match(redis.call('GET', KEYS[10]) or '', '^(%d+):(%d+):(%d+)$')
if last and tonumber(last) >= tonumber(ARGV[6]) then return {'stale'} end

-- plain says that the queue has nothing but due and leased tasks: one call tells, and
-- saves a dozen.
local plain = redis.call('EXISTS', KEYS[4], KEYS[6], KEYS[7], KEYS[8], unpack(KEYS, 13, 22)) == 0

-- What tasks have left behind, see traces; some is dropped whenever anyone pops.
local traced = {done = KEYS[18], result = KEYS[19], progress = KEYS[20], wanted = KEYS[21], ended = KEYS[22], task = KEYS[5]}
local more = not plain and forget(traces(traced), now, 100)

-- wait is how long until a task is due and may be leased, a lease ends, or a lock
-- key may be free; 100 ms at most if there is more to drop.
local function wait()
  local due = allowed(tonumber(redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]) or math.huge)
  local over = tonumber(redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]) or math.huge
  local look = not plain and tonumber(redis.call('ZRANGE', KEYS[16], 0, 0, 'WITHSCORES')[2]) or math.huge
  local soon = math.min(due, over, look)
  if more then soon = math.min(soon, now + 100000) end
  if soon == math.huge then return -1 end
  return math.max(soon - now, 0)
end
local first = wait()
if first ~= 0 and (not last or lastFence == ARGV[7]) then return {'ok', us(now), first} end

