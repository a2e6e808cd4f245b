-- poll: the part of pop that answers a poll for nothing, as most are when a hint has
-- brought all workers at once, before all that such a poll does not need. The keys
-- and arguments are those of pop, which goes on with now, extras, earliest, starts,
-- front and lapses, and with lastFence and lastStop of the caller's last pop and
-- whether that has reached it: a replica that was behind may know an earlier one than
-- the caller has received since.
local last, lastFence, lastStop = string.match(redis.call('GET', KEYS[6]) or '', '^(%d+):(%d+):(%d+)$')
if last and tonumber(last) >= tonumber(ARGV[6]) then return {'stale'} end
local reached, now = not last or tonumber(lastFence) <= (tonumber(ARGV[7]) or 0), clock()

-- earliest is the lowest score of a set, or never, and with it the member that has it.
local function earliest(set)
  local first = redis.call('ZRANGE', set, 0, 0, 'WITHSCORES')
  return tonumber(first[2]) or math.huge, first
end

-- extras is how many there are of the keys that most queues do not have: one call
-- tells, and saves a dozen.
local extras = redis.call('EXISTS', unpack(KEYS, 9))
local starts, front = earliest(KEYS[2])
local lapses = earliest(KEYS[3])
if extras == 0 and reached then
  local soon = math.min(starts, lapses)
  if soon == math.huge then return {'ok', us(now), -1} end
  if soon > now then return {'ok', us(now), soon - now} end
end

