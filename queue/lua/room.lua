-- room: the part of pop that keeps to the queue's limits. The keys and arguments
-- are those of pop, which goes on with plain: that the queue has nothing but due and
-- leased tasks.
local paused, running, rate, burst, tat
if extras > 0 then
  paused, running, rate, burst, tat = unpack(redis.call('HMGET', KEYS[13], 'paused', 'running', 'rate', 'burst', 'tat'))
  if paused then return {'paused'} end
end
local limited = running or rate or burst or tat
local plain = extras == (limited and 1 or 0)
running, rate, burst = tonumber(running), tonumber(rate), tonumber(burst) or 1

-- The rate is kept by the generic cell rate algorithm as virtual scheduling (ITU-T
-- I.371, annex A): tat is the theoretical arrival time of the next task, which may be
-- ahead of now by what a burst takes at the rate. All here is in whole ns from now, of
-- which none is rounded, but for the interval between two tasks, upwards.
local interval, bucket, ahead = rate and rate > 0 and math.ceil(1e9 / rate), 0, 0

-- charge counts n tasks against the rate.
local function charge(n)
  if not interval then return end
  ahead = ahead + n * interval
  redis.call('HDEL', KEYS[13], 'tat') -- first: it may run at the memory limit
  redis.call('HSET', KEYS[13], 'tat', us(now + math.floor(ahead / 1000)) .. string.format('.%03d', ahead % 1000))
end

if interval then
  bucket = burst * interval
  local whole, part = string.match(tat or '', '^(%d+)%.(%d%d%d)$')
  if whole then ahead = math.max((whole - now) * 1000 + tonumber(part, 10), 0) end -- miniredis reads 012 as octal
  if ahead > bucket then -- the clock was stepped back, or the limit changed
    ahead = bucket
    charge(0)
  end
end

-- room is how many tasks may be leased now, of most.
local function room(most)
  if running then most = math.min(most, running - redis.call('ZCARD', KEYS[3])) end
  if interval then most = math.min(most, math.floor((bucket - ahead) / interval)) end
  return math.max(most, 0)
end

-- allowed is when a task may be leased that is due at a time: never, until another
-- has ended. At a high rate it is when some may be, or each would cost all pollers
-- a call: what comes in 5 ms, and half a burst at most, that nothing be lost.
local function allowed(due)
  if running and redis.call('ZCARD', KEYS[3]) >= running then return math.huge end
  if not interval or ahead + interval <= bucket then return due end
  local some = math.max(1, math.floor(math.min(5e6 / interval, burst / 2, ARGV[3])))
  return math.max(due, now + math.ceil((ahead + some * interval - bucket) / 1000))
end

