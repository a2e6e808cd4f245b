-- line: those who wait for a lock, in the order in which they came, and how the
-- lock goes from one to the next. It begins the scripts that let a lock go.
-- KEYS[1] lock   string "<fence>:<token>"
-- KEYS[2] fence  string, the last fence given
-- KEYS[3] line   zset token -> place
-- KEYS[4] alive  zset instance -> when its waiters count as dead, ms
-- ARGV[1] token, which begins with its instance: "<owner>#<random>/<random>"
-- ARGV[2] TTL of the fence, ms; 0 keeps it for ever
-- ARGV[3] TTL of a lock that is granted and not yet claimed, ms
-- ARGV[4] channel
-- ARGV[5] command that publishes on it: PUBLISH, SPUBLISH, or '' for none
-- ARGV[6] 1: who does not stand in line is told that the lock is free
local lock, fence, line, alive = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local token, fence_ttl, claim, channel, publish, unfair = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local function owner(value) return string.match(value, '^%d+:(.*)$') end

local function instance(waiter) return string.match(waiter, '^(.*)/') or waiter end

local clock
local function micros()
  clock = clock or redis.call('TIME')
  return clock[1] * 1000000 + clock[2]
end

-- head is the waiter whose turn it is. The dead are dropped. Where they are too
-- many for one script the next has its turn, dead or alive: nobody may come
-- before those behind.
local function head()
  local waiter
  for _ = 1, 1000 do
    waiter = redis.call('ZRANGE', line, 0, 0)[1]
    if not waiter then return nil end
    local ends = redis.call('ZSCORE', alive, instance(waiter))
    if ends and tonumber(ends) > micros() / 1000 then return waiter end
    redis.call('ZREM', line, waiter)
  end
  return redis.call('ZRANGE', line, 0, 0)[1]
end

-- give makes a token the holder of the free lock, and returns its fence. Its
-- first write needs memory: without any, and unless what came before has freed
-- some, Redis refuses it, and nothing has happened.
local function give(to, ttl)
  local last = tonumber(redis.call('GET', fence)) or 0
  local mine = string.format('%.0f', math.max(last + 1, micros()))
  if fence_ttl == '0' then redis.call('SET', fence, mine) else redis.call('SET', fence, mine, 'PX', fence_ttl) end
  redis.call('SET', lock, mine .. ':' .. to, 'PX', ttl)
  return mine
end

-- tell may fail: it is a hint, an ACL may forbid it, and Redis before 7 knows no
-- SPUBLISH.
local function tell(waiter)
  if publish == '' then return end
  local message = lock .. '\n' .. waiter
  local told = redis.pcall(publish, channel, message)
  if publish == 'SPUBLISH' and type(told) == 'table' then redis.pcall('PUBLISH', channel, message) end
end

-- pass grants the free lock to the waiter whose turn it is. It is to claim it.
local function pass()
  local waiter = head()
  if waiter then
    redis.call('ZREM', line, waiter)
    give(waiter, claim)
    tell(waiter)
  elseif unfair == '1' then
    tell('')
  end
  return waiter
end
