-- now: tells the clock of the server that has the queue.
-- KEYS[1] any of the queue's, for the slot
-- returns µs
return us(clock())
