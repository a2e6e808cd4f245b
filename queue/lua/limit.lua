-- limit: sets the limits of a queue, and wakes the pollers.
-- KEYS[1] conf  hash
-- KEYS[2] wake  channel
-- ARGV[1] most tasks leased at once, or ''
-- ARGV[2] rate, tasks a second, or ''
-- ARGV[3] burst, tasks, or ''
local set, clear = {}, {}
for i, field in ipairs({'running', 'rate', 'burst'}) do
  if ARGV[i] == '' then
    clear[#clear + 1] = field
  else
    set[#set + 1], set[#set + 2] = field, ARGV[i]
  end
end
if ARGV[2] == '' then clear[#clear + 1] = 'tat' end
if #set > 0 then redis.call('HSET', KEYS[1], unpack(set)) end -- first: it may be refused
if #clear > 0 then redis.call('HDEL', KEYS[1], unpack(clear)) end
redis.pcall('PUBLISH', KEYS[2], 'limits')
