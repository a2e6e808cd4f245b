package lock

import _ "embed" // for the script

//go:embed lua/fence.lua
var fenceLua string

// FenceCheck returns a script that runs body unless a later holder of the lock
// has been there: the check that a store makes so that a process that was paused
// past the end of its lease cannot overwrite what others wrote since. KEYS[1] is
// a string that holds the highest fence seen, ARGV[1] the caller's, a
// [Lease.Fence] in decimal digits. If that is lower than the highest, the script
// answers {"stale", highest} and changes nothing. If not, it is stored as the
// highest, as given, and body goes on; equal fences pass, for one holder may
// write often. A fence that is not 1 to 20 digits, in ARGV[1] or stored, is an
// error that changes nothing.
//
// Redis does not roll back: a body that fails has still announced its fence,
// which shuts out nobody but those who were late already. KEYS[1] is one key a
// protected thing and lives as long as that: without it every fence passes, so it
// must not expire, and in a cluster it has the thing's hash tag.
//
// Who reads, decides and then writes does both through the check. If only the
// write is checked, an earlier holder can still write between the two, and is
// overwritten without having been told.
//
// A table in SQL has the check in its condition, and a fence of 0 at first:
//
//	UPDATE orders SET state = $2, fence = $3 WHERE id = $1 AND fence <= $3
//
// where 0 rows mean that the caller was late, or that there is no such order. The
// read before it is the like: UPDATE orders SET fence = $2 ... RETURNING state.
func FenceCheck(body string) *Script { return NewScript(fenceLua + body) }
