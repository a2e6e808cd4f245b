-- grant: the part of pop that leases tasks.

local byte, putBy = string.byte, 0
local members, ids, records, entries, missing, n = {}, {}, {}, {}, {}, 0

-- tried says whether a task is on trial: one that one more crash would bury is run
-- while no other such is, until it has settled or a third of its lease is over.
-- Else the task that kills workers would take those that run beside it to the dead
-- letter.
local busy
local function tried()
  if busy == nil then
    busy = trial and tonumber(trialEnd) > now and redis.call('ZSCORE', k.leased, trial) and true or false
  end
  return busy
end

-- grant leases what it may of some tasks, given as {id, due, ...}, that are in no
-- set. One whose lock key is taken is parked, as is one that came after the key was
-- let go and before those that wait for it were looked at; one that waits for a trial
-- is due again in 100 ms.
local function grant(token, head, crashes)
  local fresh = crashes ~= nil -- else it is a repeated pop, and the keys are held
  crashes = crashes or {}
  local score, due, lead -- of the one before
  for i, record in ipairs(redis.call('HMGET', k.task, unpack(names(head)))) do
    local id, key = head[2 * i - 1], record and byte(record, 1, 1) == 2 and keyOf(record)
    if head[2 * i] ~= score then
      score = head[2 * i]
      due = string.find(score, '^%d+$') and score or us(tonumber(score) < 0 and now or score)
      lead = token .. ':' .. due .. ':'
    end
    local mine = key and holding(token, due, id)
    local left = key and lockKeys().blocked(key, mine, adopt)
    local last = crashes[i] and limit > 1 and (tonumber(crashes[i]) or 0) >= limit - 1
    local behind = key and fresh and not left and not plain and redis.call('ZSCORE', k.blocked, key) and turnsOf(k, key, turn(key, due, id), 1)[1]
    if left or behind then
      park(k, key, id, due, us(now + 1000 * (left or unclaimed)))
      if behind then unpark(k, key) end
      plain, putBy = false, putBy + 1
    elseif last and tried() then
      redis.call('ZADD', k.due, us(now + 100000), id)
      putBy = putBy + 1
    else
      local member = lead .. id
      if key then
        member = token .. ':' .. due .. '@' .. key .. '\n' .. id
        lockKeys().hold(key, mine, math.ceil(lease / 1000))
        if not plain then redis.call('ZADD', k.blocked, 'XX', us(now + lease), key) end
      end
      if last then
        busy = true
        redis.call('SET', k.trial, us(now + lease / 3) .. ':' .. member, 'PX', math.ceil(lease / 1000))
      end
      n = n + 1
      members[n], ids[n], records[n] = member, id, record
      if record then
        entries[#entries + 1], entries[#entries + 2] = stop, member
      else
        missing[#missing + 1] = id
      end
    end
  end
end

-- answer writes down what was granted, if anything was.
local function answer(token)
  if #entries > 0 then redis.call('ZADD', k.leased, unpack(entries)) end
  local soon = n < most and wait() or 0
  if n == 0 then return {'ok', us(now), soon} end
  redis.call('SET', k.pop, ARGV[6] .. ':' .. token .. ':' .. stop, 'PX', math.ceil(lease / 1000))
  bury(k, missing, now)
  local failures = failing and redis.call('HMGET', k.fail, unpack(ids)) or {}
  local crashes = crashing and redis.call('HMGET', k.crash, unpack(ids)) or {}
  return {'ok', us(now), soon, token, members, records, failures, crashes}
end

