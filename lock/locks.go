package lock

import (
	_ "embed" // for the script
	"errors"
	"fmt"
	"strconv"
	"strings"
)

//go:embed lua/locks.lua
var locksLua string

// Locks is Lua source for a script to begin with that takes, keeps and frees locks
// in one step with its own work, as the scripts of a task queue do. It defines a
// function; called with the [Locker.Terms] of a locker, and the server's now in µs if
// the script knows it already, that returns a table of functions, by which names are
// locked for holders that the script itself spells:
//
//	local locks = locks(terms, now)
//	locks.blocked(name, mine, adopt)  -- ms for which another has it at most; nil: mine may
//	locks.hold(name, mine, ttl)       -- makes mine the holder, if it is not blocked
//	locks.holds(name, mine)           -- whether mine is
//	locks.keep(name, mine, ttl)       -- false if another has it
//	locks.free(name, mine)            -- to the next in line
//
// mine is "<fence>:<token>", its fence above the last in Config.FenceKey, which the
// script has raised to it; times are ms, and adopt is the TTL for a lock without
// one. Such a holder does not stand in line: who does goes first, and the script
// comes back when the lock may be free, or as [Config].Parked tells it.
var Locks = "local function locks(terms, now)\n" + lineLua + locksLua + "end\n"

// Terms tells [Locks] where the locks of this locker are. It is an error unless
// they share a hash tag and are on one Redis, or if one of its keys has a line feed.
func (l *Locker) Terms() (string, error) {
	s, ok := l.store.(single)
	if !ok || !l.cfg.tagged() {
		return "", errors.New("lock: terms are those of one Redis and a prefix with a hash tag")
	}
	terms := s.terms()
	for _, term := range terms {
		if strings.Contains(term, "\n") {
			return "", fmt.Errorf("lock: terms: %w: %q has a line feed", ErrInvalid, term)
		}
	}
	return strings.Join(terms, "\n"), nil
}

// terms are what locks.lua takes apart.
func (n *node) terms() []string {
	claim := strconv.FormatInt(claimTTL.Milliseconds(), 10)
	return []string{
		n.cfg.Prefix, n.cfg.FenceKey, claim, n.channel, n.publish(), n.unfair(), n.cfg.Parked, n.cfg.ParkedWake,
	}
}
