-- poll: the part of pop that answers a poll for nothing, as most are when a hint
-- has brought all workers at once. The keys and arguments are those of pop, which
-- goes on with wait, lookAt, and last, lastFence and lastStop of the caller's last pop.
local last, lastFence, lastStop = string.match(redis.call('GET', KEYS[10]) or '', '^(%d+):(%d+):(%d+)$')
if last and tonumber(last) >= tonumber(ARGV[6]) then return {'stale'} end

-- wait is how long until a task is due and may be leased, a lease ends, or a lock
-- key may be free.
local lookAt
local function wait()
  local due = allowed(tonumber(redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2]) or math.huge)
  local over = tonumber(redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]) or math.huge
  lookAt = tonumber(redis.call('ZRANGE', KEYS[16], 0, 0, 'WITHSCORES')[2]) or math.huge
  local soon = math.min(due, over, lookAt)
  if soon == math.huge then return -1 end
  return math.max(soon - now, 0)
end
local first = wait()
if first ~= 0 and (not last or lastFence == ARGV[7]) then return {'ok', us(now), first} end

