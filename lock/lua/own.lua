-- own: begins the scripts of one lock, behind line.
-- KEYS[1] to KEYS[4]  lock, fence, line, alive
-- ARGV[1] token
-- ARGV[2] and further: fence_ttl, claim, channel, publish, unfair, name, parked, wake
local l = {
  lock = KEYS[1], fence = KEYS[2], line = KEYS[3], alive = KEYS[4], fence_ttl = ARGV[2], claim = ARGV[3],
  channel = ARGV[4], publish = ARGV[5], unfair = ARGV[6], name = ARGV[7], parked = ARGV[8], wake = ARGV[9],
}
local token = ARGV[1]

