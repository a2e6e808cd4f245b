-- progress: keeps what a delivery reports of itself, if its lease is held.
-- KEYS[1] leased    zset  member, see key -> lease end, µs
-- KEYS[2] progress  hash  id -> JSON
-- ARGV[1] leased member
-- ARGV[2] id
-- ARGV[3] progress
-- returns "ok", or "lost" if the lease is not held
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 'lost' end
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
return 'ok'
