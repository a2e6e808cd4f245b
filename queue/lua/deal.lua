-- deal: the part of pop that does it. What is parked makes room for others, as far as
-- the limits allow and 200 have been parked.
local over = reclaim(k, lockKeys, limit, now)
if over == 100 then return answer() end -- the next pop goes on: what was leased goes before what was parked
if over > 0 then failing, crashing, plain = true, true, false end
local head = again()
if #head > 0 then
  grant(lastFence, head, {})
  return answer(lastFence)
end
if not plain then look(k, lockKeys, adopt, now) end

local token, may = nil, room(most)
while n < may and parks < 200 do
  head = dueHead(k.due, now, may - n)
  local size = #head / 2
  if size == 0 then break end
  local asked = may - n
  redis.call('ZREMRANGEBYRANK', k.due, 0, size - 1)
  if not token then
    token = us(math.max((tonumber(redis.call('GET', k.fence)) or 0) + 1, now)) -- above what look may have given
    redis.call('SET', k.fence, token)
  end
  grant(token, head, crashing and redis.call('HMGET', k.crash, unpack(names(head))) or {})
  if size < asked then break end
end
if n > 0 then charge(n) end
return answer(token)
