-- pause: stops or resumes the popping of a queue.
-- KEYS[1] conf  hash
-- KEYS[2] wake  channel
-- ARGV[1] "1" pauses, "" resumes
if ARGV[1] == '1' then
  redis.call('HDEL', KEYS[1], 'paused') -- first: it may run at the memory limit
  redis.call('HSET', KEYS[1], 'paused', '1')
else
  redis.call('HDEL', KEYS[1], 'paused')
  redis.pcall('PUBLISH', KEYS[2], 'resumed')
end
