-- schedule: begins every script that makes tasks due. It adds entries of score
-- and id to the due set, first those removed, and hints the pollers if the head
-- has moved earlier. Scores are µs as strings.
local function schedule(due, wake, entries)
  if #entries == 0 then return end
  local head = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
  redis.call('ZADD', due, unpack(entries))
  local first = redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')
  if not head[2] or tonumber(first[2]) < tonumber(head[2]) then
    redis.call('PUBLISH', wake, first[2])
  end
end
