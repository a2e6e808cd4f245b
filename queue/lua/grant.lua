-- grant: the part of pop that leases tasks. It goes on with members, ids and records,
-- n of each, and with entries and missing, which answer writes down and tells of.
local members, ids, records, entries, missing, n = {}, {}, {}, {}, {}, 0
local byte = string.byte

-- What is parked or waits for a trial makes room for others, until 200 have.
while n < may and putBy < 200 do
  local asked = may - n
  if fresh then
    head, known = known or dueHead(k.due, now, asked), nil
    if #head == 0 then break end
    redis.call('ZREMRANGEBYRANK', k.due, 0, #head / 2 - 1)
    if n + putBy == 0 then
      if lockTable then fence = redis.call('GET', k.fence) end -- look may have given some
      token = us(math.max((tonumber(fence) or 0) + 1, now))
      redis.call('SET', k.fence, token)
    end
  end
  local some, size = names(head), #head / 2
  local found = redis.call('HMGET', k.task, unpack(some))
  local crashes = fresh and crashing and redis.call('HMGET', k.crash, unpack(some)) or {}
  if n == 0 then ids, records = some, found end -- most often all of them are granted
  local score, due, lead -- of the one before
  for i = 1, size do
    local id, record = some[i], found[i]
    local key = record and byte(record, 1, 1) == 2 and keyOf(record)
    if head[2 * i] ~= score then
      score = head[2 * i]
      due = string.find(score, '^%d+$') and score or us(tonumber(score) < 0 and now or score)
      lead = token .. ':' .. due .. ':'
    end
    local mine = key and holding(token, due, id)
    local left = key and lockKeys().blocked(key, mine, adopt)
    -- Who came after the key was let go, and before those that wait for it were
    -- looked at, is behind them. The keys of a lost pop are held.
    local behind = key and fresh and not left and not plain and redis.call('ZSCORE', k.blocked, key)
      and turnsOf(k, key, turn(key, due, id), 1)[1]
    local last = crashes[i] and limit > 1 and (tonumber(crashes[i]) or 0) >= limit - 1
    if left or behind then
      park(k, key, id, due, us(now + 1000 * (left or unclaimed)))
      if behind then unpark(k, key) end
      plain, putBy = false, putBy + 1
    elseif last and busy then
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
  for i = #ids, n + 1, -1 do ids[i], records[i] = nil, nil end
  if not fresh or size < asked then break end
end

