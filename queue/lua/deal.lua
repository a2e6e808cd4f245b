-- deal: the part of pop that does it. What is parked makes room for others, as far as
-- the limits allow and 500 tasks are looked at.
if reclaim(k, lockKeys, limit, now) then failing, crashing, lookAt = true, true, now end
if lookAt <= now then look(k, lockKeys, adopt, now) end
local head = again()
if #head > 0 then
  grant(lastFence, head, {})
  return answer(lastFence)
end

local token, may, left = nil, room(most), 500
while n < may and left > 0 do
  local asked = math.min(may - n, left)
  head = dueHead(k.due, now, asked)
  local size = #head / 2
  if size == 0 then break end
  redis.call('ZREMRANGEBYRANK', k.due, 0, size - 1)
  if not token then
    token = us(math.max(fence + 1, now))
    redis.call('SET', k.fence, token)
  end
  grant(token, head, crashing and redis.call('HMGET', k.crash, unpack(names(head))) or {})
  if size < asked then break end
  left = left - size
end
if n > 0 then charge(n) end
return answer(token)
