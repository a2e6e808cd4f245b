-- land: the part of settle that writes down what was decided.
-- All keys are read before one is written: one of another type fails here.
redis.call('HLEN', task)
if running or #ended > #gone then
  for _, set in ipairs({due, dead}) do redis.call('ZCARD', set) end
end
redis.call('ZREM', leased, unpack(ended))
if #gone > 0 then redis.call('HDEL', task, unpack(gone)) end
if #clear > 0 then
  if failing then redis.call('HDEL', fail, unpack(clear)) end
  if crashing then redis.call('HDEL', crash, unpack(clear)) end
  if replaced then redis.call('HDEL', following, unpack(clear)) end
  if cancels then redis.call('HDEL', cancel, unpack(clear)) end
end
if traced.reported then
  for _, list in ipairs({gone, stale}) do
    if #list > 0 then redis.call('HDEL', traced.progress, unpack(list)) end
  end
end
if #notes > 0 then redis.call('HSET', fail, unpack(notes)) end
if #records > 0 then redis.call('HSET', task, unpack(records)) end
if #died > 0 then redis.call('ZADD', dead, unpack(died)) end
if #kept > 0 then
  redis.call('ZADD', traced.done, unpack(kept))
  if #results > 0 then redis.call('HSET', traced.result, unpack(results)) end
end
schedule(due, wake, entries, now)
if running then
  -- Where the limit was reached, pollers sleep until a lease was to end.
  local left = redis.call('ZCARD', leased)
  local first = left < running and left + #ended >= running and redis.call('ZRANGE', due, 0, 0, 'WITHSCORES')[2]
  if first then redis.pcall('PUBLISH', wake, us(math.max(first - now, 0))) end
end
local lockKeys = #keys > 0 and locks(ARGV[#ARGV], now)
for i = 1, #keys, 2 do lockKeys.free(keys[i], keys[i + 1]) end
tell(traced, ends, now)
forget(traced, now, math.max(100, #kept)) -- #kept is twice as many as are kept anew
for action, times in pairs(count) do
  if times > 0 then redis.pcall('HINCRBY', stat, action, times) end
end
return lost
