-- poll: the part of pop that answers a poll for nothing, as most are when a hint
-- has brought all workers at once. The keys and arguments are those of pop, which
-- goes on with now, wait, and last, lastFence and lastStop of the caller's last pop.
if redis.call('HGET', KEYS[11], 'paused') then return {'paused'} end
local now = clock()
local last, lastFence, lastStop = string.match(redis.call('GET', KEYS[10]) or '', '^(%d+):(%d+):(%d+)$')
if last and tonumber(last) >= tonumber(ARGV[6]) then return {'stale'} end

-- What tasks have left behind, see traces; some is dropped whenever anyone pops.
local left = {done = KEYS[14], result = KEYS[15], progress = KEYS[16], wanted = KEYS[17], ended = KEYS[18], task = KEYS[5]}
local more = forget(traces(left), now, 100)

-- wait is how long until a task is due or a lease ends, or 100 ms at most if there
-- is more to drop.
local function wait()
  local due = tonumber(redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]) or math.huge
  local over = tonumber(redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]) or math.huge
  local soon = math.min(due, over)
  if more then soon = math.min(soon, now + 100000) end
  if soon == math.huge then return -1 end
  return math.max(soon - now, 0)
end
local first = wait()
if first ~= 0 and (not last or lastFence == ARGV[7]) then return {'ok', us(now), first} end

