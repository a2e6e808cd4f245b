-- again: the part of pop for a caller whom the last pop did not reach. It goes on with
-- head, what that leased, and gives back what is now too much. What was cancelled has
-- not begun and is gone.
local head = {}
if not reached and over < share then
  local found, spare = {}, 0
  for _, member in ipairs(redis.call('ZRANGE', k.leased, lastStop, lastStop, 'BYSCORE')) do
    local token, was, id, key = parts(member)
    if token == lastFence then
      redis.call('ZREM', k.leased, member)
      local mine = key and holding(token, was, id)
      if cut(k, token, id, now) then
        spare = spare + 1
        if key then lockKeys().free(key, mine) end
      elseif key and not lockKeys().holds(key, mine) then
        spare = spare + 1
        redis.call('ZADD', k.due, was, id) -- others may have had the key since, under later fences
      else
        found[#found + 1] = {id = id, due = was, key = key}
      end
    end
  end
  -- Members with a lock key are not in the order of the due set.
  table.sort(found, function(a, b)
    if a.due ~= b.due then return tonumber(a.due) < tonumber(b.due) end
    return a.id < b.id
  end)
  for i, task in ipairs(found) do
    if i <= most then
      head[2 * i - 1], head[2 * i] = task.id, task.due
    else
      spare = spare + 1
      if not replace(k, task.id) then redis.call('ZADD', k.due, task.due, task.id) end
      if task.key then lockKeys().free(task.key, holding(lastFence, task.due, task.id)) end
    end
  end
  if spare > 0 then redis.pcall('PUBLISH', k.wake, '0') end
end

