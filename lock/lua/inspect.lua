-- inspect: shows a lock as it stands, and changes nothing.
-- KEYS[1] lock  string "<fence>:<token>"
-- KEYS[2] line  zset token -> place
-- returns {value or "", ms left (-1: for ever, -2: free), tokens in line}
return {redis.call('GET', KEYS[1]) or '', redis.call('PTTL', KEYS[1]), redis.call('ZCARD', KEYS[2])}
