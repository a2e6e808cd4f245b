-- line: those who wait for a lock, in the order in which they came, and how the
-- lock goes from one to the next. It begins the scripts that let a lock go. A lock
-- is a table:
--   lock    string "<fence>:<token>", its key
--   fence   string, the last fence given
--   line    zset token -> place
--   alive   zset instance -> when its waiters count as dead, ms
--   name    of the lock
--   fence_ttl  ms; 0 keeps the fence for ever
--   claim   TTL of a lock that is granted and not yet claimed, ms
--   channel, publish  where a grant is told, and by which command: PUBLISH,
--           SPUBLISH, or '' for none
--   unfair  1: who does not stand in line is told that the lock is free
--   parked  zset name -> when to look, of names for which others wait than who
--           stands in line, or ''; wake is their channel
-- A token begins with its instance: "<owner>#<random>/<random>".

local function owner(value) return string.match(value, '^%d+:(.*)$') end

local function instance(waiter) return string.match(waiter, '^(.*)/') or waiter end

local function us(time) return string.format('%.0f', time) end

-- micros is the server's now, as the script began: TIME goes on while it runs.
local function micros()
  if not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
  end
  return now
end

-- head is the waiter whose turn it is. The dead are dropped. Where they are too
-- many for one script the next has its turn, dead or alive: nobody may come
-- before those behind.
local drops = 1000
local function head(l)
  while drops > 0 do
    local waiter = redis.call('ZRANGE', l.line, 0, 0)[1]
    if not waiter then return nil end
    local ends = redis.call('ZSCORE', l.alive, instance(waiter))
    if ends and tonumber(ends) > micros() / 1000 then return waiter end
    redis.call('ZREM', l.line, waiter)
    drops = drops - 1
  end
  return redis.call('ZRANGE', l.line, 0, 0)[1]
end

-- give makes a token the holder of the free lock, and returns its fence. Its
-- first write needs memory: without any, and unless what came before has freed
-- some, Redis refuses it, and nothing has happened.
local function give(l, to, ttl)
  local last = tonumber(redis.call('GET', l.fence)) or 0
  local mine = us(math.max(last + 1, micros()))
  if l.fence_ttl == '0' then redis.call('SET', l.fence, mine) else redis.call('SET', l.fence, mine, 'PX', l.fence_ttl) end
  redis.call('SET', l.lock, mine .. ':' .. to, 'PX', ttl)
  return mine
end

-- tell may fail: it is a hint, an ACL may forbid it, and Redis before 7 knows no
-- SPUBLISH.
local function tell(l, waiter)
  if l.publish == '' then return end
  local message = l.lock .. '\n' .. waiter
  local told = redis.pcall(l.publish, l.channel, message)
  if l.publish == 'SPUBLISH' and type(told) == 'table' then redis.pcall('PUBLISH', l.channel, message) end
end

-- grant makes the waiter whose turn it is the holder of the free lock, and returns
-- it. It is to claim the lock; those who do not stand in line look when it has not.
local function grant(l)
  local waiter = head(l)
  if not waiter then return nil end
  redis.call('ZREM', l.line, waiter)
  give(l, waiter, l.claim)
  tell(l, waiter)
  if l.parked ~= '' then redis.pcall('ZADD', l.parked, 'XX', us(micros() + 1000 * l.claim), l.name) end
  return waiter
end

-- pass grants the free lock. If nobody stands in line, those who do not are told to
-- look, once a script. A line of another type is nobody's.
local function pass(l)
  local fine, waiter = pcall(grant, l)
  if fine and waiter then return end
  if l.unfair == '1' then tell(l, '') end
  if l.parked == '' then return end
  local sooner = redis.pcall('ZADD', l.parked, 'XX', 'LT', 'CH', us(micros()), l.name)
  if sooner == 1 and not l.told then
    l.told = true
    redis.pcall('PUBLISH', l.wake, '0')
  end
end

