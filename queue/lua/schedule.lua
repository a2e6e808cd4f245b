-- schedule: begins the scripts that make due what was not. It adds entries of
-- score and id to the due set, first those removed, and hints the pollers, if nothing
-- was to be due before, how many µs it is until then. Scores are µs as strings.
local function schedule(due, wake, entries, now)
  if #entries == 0 then return end
  local first = math.huge
  for i = 1, #entries, 2 do
    if entries[i] ~= entries[i - 2] then first = math.min(first, tonumber(entries[i])) end
  end
  local earlier = redis.call('ZCOUNT', due, '-inf', us(first))
  redis.call('ZADD', due, unpack(entries))
  if earlier == 0 then redis.pcall('PUBLISH', wake, us(math.max(first - now, 0))) end
end
