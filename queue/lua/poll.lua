-- poll: the part of pop that answers a poll for nothing, as most are when a hint
-- has brought all workers at once. The keys and arguments are those of pop, which
-- goes on with wait, lookAt, and last, lastFence and lastStop of the caller's last pop.
local last, lastFence, lastStop = string.match(redis.call('GET', KEYS[10]) or '', '^(%d+):(%d+):(%d+)$')
if last and tonumber(last) >= tonumber(ARGV[6]) then return {'stale'} end

-- What tasks have left behind, see traces; some is dropped whenever anyone pops.
local traced = {done = KEYS[18], result = KEYS[19], progress = KEYS[20], wanted = KEYS[21], ended = KEYS[22], task = KEYS[5]}
local more = forget(traces(traced), now, 100)

-- wait is how long until a task is due and may be leased, a lease ends, or a lock
-- key may be free; 100 ms at most if there is more to drop.
local lookAt
local function wait()
  local due = allowed(tonumber(redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]) or math.huge)
  local over = tonumber(redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]) or math.huge
  lookAt = tonumber(redis.call('ZRANGE', KEYS[16], 0, 0, 'WITHSCORES')[2]) or math.huge
  local soon = math.min(due, over, lookAt)
  if more then soon = math.min(soon, now + 100000) end
  if soon == math.huge then return -1 end
  return math.max(soon - now, 0)
end
local first = wait()
if first ~= 0 and (not last or lastFence == ARGV[7]) then return {'ok', us(now), first} end

