package lock

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// An Info shows a lock as it stands.
type Info struct {
	Name     string
	Held     bool
	Owner    string // the holder's, as its Config has it
	Token    string // the holder's; with it the lease can be resumed
	Fence    uint64 // the holder's; 0 if another kind of client has it
	TTL      time.Duration
	NoExpiry bool // it has no TTL: its maker crashed, and nobody has looked since
	Waiters  int  // in line on Redis, some of which may have died; those of an Unfair locker are not seen
}

func newInfo(name, value string, left, waiters int64) Info {
	info := Info{Name: name, Waiters: int(waiters)}
	if left != -2 {
		info.Held, info.NoExpiry = true, left == -1
		info.TTL = timeLeft(max(left, 0))
		info.Fence, info.Token = split(value)
		info.Owner = ownerOf(value)
	}
	return info
}

// Inspect shows the lock of a name, and changes nothing.
func (l *Locker) Inspect(ctx context.Context, name string) (Info, error) {
	if err := CheckName(name); err != nil {
		return Info{}, fmt.Errorf("lock: inspect: %w", err)
	}
	info, err := l.store.inspect(ctx, name)
	if err != nil {
		return Info{}, fmt.Errorf("lock: inspect %q: %w", name, err)
	}
	return info, nil
}

// ForceRelease frees locks whoever holds them, and says how many were held. The
// holders find out at their next renewal, and their fences are lower than any
// that follows. Waiters have their turn as after a release. With an error some
// locks may not have been freed.
func (l *Locker) ForceRelease(ctx context.Context, names ...string) (int, error) {
	for _, name := range names {
		if err := CheckName(name); err != nil {
			return 0, fmt.Errorf("lock: force release: %w", err)
		}
	}
	freed := 0
	for _, name := range names {
		was, err := l.store.force(ctx, name)
		if err != nil {
			return freed, fmt.Errorf("lock: force release %q: %w", name, err)
		}
		if was {
			freed++
		}
	}
	return freed, nil
}

// split parts what is stored at a lock's key: "<fence>:<token>". What another
// kind of client has stored is a token without a fence.
func split(value string) (fence uint64, token string) {
	digits, token, found := strings.Cut(value, ":")
	fence, err := strconv.ParseUint(digits, 10, 64)
	if !found || err != nil {
		return 0, value
	}
	return fence, token
}

// ownerOf is what an operator reads in what is stored at a lock's key.
func ownerOf(value string) string {
	_, token := split(value)
	if i := strings.LastIndexByte(token, '#'); i >= 0 && strings.Contains(token[i:], "/") {
		return token[:i]
	}
	return strings.ToValidUTF8(token[:min(len(token), MaxOwner)], "")
}
