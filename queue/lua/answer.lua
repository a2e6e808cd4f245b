-- answer: the end of pop, which writes down what was leased.
if fresh and n > 0 then charge(n) end
if #entries > 0 then redis.call('ZADD', k.leased, unpack(entries)) end
local soon = n < most and wait((earliest(k.due)), (earliest(k.leased))) or 0
if n == 0 then return {'ok', us(now), soon} end
redis.call('SET', k.pop, ARGV[6] .. ':' .. token .. ':' .. stop, 'PX', math.ceil(lease / 1000))
bury(k, missing, now)
local failures = failing and redis.call('HMGET', k.fail, unpack(ids)) or {}
local crashes = crashing and redis.call('HMGET', k.crash, unpack(ids)) or {}
return {'ok', us(now), soon, token, members, records, failures, crashes}
