package lock

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxName is the longest name of a lock, in bytes.
const MaxName = 512

// MaxOwner is the longest Owner of a locker, in bytes.
const MaxOwner = 128

// MinTTL is the shortest TTL of a lock: below it the allowance for drift would
// leave too little to work with.
const MinTTL = 10 * time.Millisecond

// maxPoll is the longest pause between two looks of who hears nothing. What is
// granted is not to lapse between them.
const maxPoll = claimTTL / 2

// ErrInvalid means that an argument is out of its bounds. Nothing was sent.
var ErrInvalid = errors.New("invalid argument")

// Config holds a locker's settings; the zero value is ready to use. Processes
// that lock the same names must agree on Prefix, FenceKey and Unfair.
type Config struct {
	// Prefix begins the key of every lock. With a hash tag in it, such as
	// "shop:{orders}:", all names share one cluster slot and one fence counter;
	// without, every name is a hash tag of its own. Default: "duly:lock:".
	Prefix string

	// FenceKey is the fence counter that all names share. It needs a Prefix
	// with a hash tag, and has the same tag. Default: Prefix + "{fence}", which
	// no name can spell.
	FenceKey string

	// Owner is what an operator reads in a lock of this process. Default: host
	// name and process id, "shop-7:4711"; at most 128 bytes.
	Owner string

	// Unfair lets whoever asks first have a lock that became free. By default
	// it goes to the waiters in the order in which they came.
	Unfair bool

	// PollOnly makes waiters look at a lock again and again instead of
	// subscribing to what Redis publishes.
	PollOnly bool

	// PollMin and PollMax bound the random pause between two looks of a process
	// at a lock that another holds, while nothing can be heard from Redis: with
	// PollOnly, before a subscription stands and after it broke, and on a
	// quorum. Default: 5 ms and 100 ms; at most 500 ms, for a waiter must see in
	// time that it is its turn.
	PollMin, PollMax time.Duration

	// AdoptTTL is given to a lock that is found without a TTL. Default: 30 s;
	// at least 10 ms.
	AdoptTTL time.Duration

	// ReplicaAcks is how many replicas must have a lock before it is held, and
	// an extension before it counts: Redis is asked by WAIT on the same
	// connection, for a tenth of the TTL, for a second and for three quarters of
	// what ctx leaves at most; then it is [ErrUnreplicated]. On a quorum it is
	// asked of the replicas of each node. It makes the loss of a lock by a failover
	// rarer and does not exclude it. Default: 0; at most 16.
	ReplicaAcks int

	// Parked is the Redis key of a sorted set of names for which others wait than
	// this package's waiters, such as tasks in a queue; it has the hash tag of Prefix.
	// Its scores are when they look, in µs of the server's clock: that becomes now when
	// such a name is let go and nobody stands in line, and "0" is published on the
	// channel ParkedWake; or when a grant lapses, if somebody does. That a lock expires
	// is not told. It goes with [Locks]. Default: none.
	Parked, ParkedWake string

	// Observer is told what happens to the locks of this locker. It is called
	// from many goroutines and must return quickly. Default: none.
	Observer func(Event)
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = "duly:lock:"
	}
	if c.FenceKey == "" && c.tagged() {
		c.FenceKey = c.Prefix + "{fence}"
	}
	if c.Owner == "" {
		host, _ := os.Hostname()
		c.Owner = fmt.Sprintf("%.100s:%d", host, os.Getpid())
	}
	if c.PollMin == 0 {
		c.PollMin = 5 * time.Millisecond
		if c.PollMax > 0 {
			c.PollMin = min(c.PollMin, c.PollMax)
		}
	}
	if c.PollMax == 0 {
		c.PollMax = max(100*time.Millisecond, c.PollMin)
	}
	if c.AdoptTTL == 0 {
		c.AdoptTTL = 30 * time.Second
	}
	if c.Observer == nil {
		c.Observer = func(Event) {}
	}
	return c
}

func (c Config) validate() error {
	tag, braces := hashTag(c.Prefix)
	fenceTag, _ := hashTag(c.FenceKey)
	parkedTag, _ := hashTag(c.Parked)
	switch {
	case c.PollMin < time.Millisecond || c.PollMax < c.PollMin || c.PollMax > maxPoll:
		return fmt.Errorf("%w: PollMin %v and PollMax %v: need 1ms ≤ PollMin ≤ PollMax ≤ %v", ErrInvalid, c.PollMin, c.PollMax, maxPoll)
	case c.AdoptTTL < MinTTL:
		return fmt.Errorf("%w: AdoptTTL %v is under %v", ErrInvalid, c.AdoptTTL, MinTTL)
	case c.ReplicaAcks < 0 || c.ReplicaAcks > 16:
		return fmt.Errorf("%w: ReplicaAcks %d is not between 0 and 16", ErrInvalid, c.ReplicaAcks)
	case braces && tag == "":
		return fmt.Errorf("%w: Prefix %q has an empty hash tag", ErrInvalid, c.Prefix)
	case c.FenceKey != "" && (!braces || fenceTag != tag):
		return fmt.Errorf("%w: FenceKey %q needs the hash tag of Prefix %q", ErrInvalid, c.FenceKey, c.Prefix)
	case c.Parked != "" && (!braces || parkedTag != tag):
		return fmt.Errorf("%w: Parked %q needs the hash tag of Prefix %q", ErrInvalid, c.Parked, c.Prefix)
	}
	return checkText("Owner", c.Owner, MaxOwner)
}

// tagged says that all names share the hash tag of Prefix.
func (c Config) tagged() bool {
	tag, braces := hashTag(c.Prefix)
	return braces && tag != ""
}

// hashTag is what Redis Cluster takes the slot of a key from, if it is not
// empty: what stands between its first brace and the next that closes.
func hashTag(key string) (tag string, braces bool) {
	_, rest, _ := strings.Cut(key, "{")
	tag, _, braces = strings.Cut(rest, "}")
	return tag, braces
}

// CheckName reports why a name cannot be a lock's: it is 1 to 512 bytes of
// valid UTF-8 without control characters and without braces, which would move
// its cluster slot. The error matches [ErrInvalid].
func CheckName(name string) error {
	if err := checkText("name", name, MaxName); err != nil {
		return err
	}
	if strings.ContainsAny(name, "{}") {
		return fmt.Errorf("%w: name %q has a brace", ErrInvalid, name)
	}
	return nil
}

func checkText(what, s string, most int) error {
	switch {
	case s == "":
		return fmt.Errorf("%w: empty %s", ErrInvalid, what)
	case len(s) > most:
		return fmt.Errorf("%w: %s of %d bytes, over %d", ErrInvalid, what, len(s), most)
	case !utf8.ValidString(s):
		return fmt.Errorf("%w: %s %q is not UTF-8", ErrInvalid, what, s)
	case strings.ContainsFunc(s, unicode.IsControl):
		return fmt.Errorf("%w: %s %q has a control character", ErrInvalid, what, s)
	}
	return nil
}

func check(name string, ttl time.Duration) error {
	if ttl < MinTTL {
		return fmt.Errorf("%w: TTL %v is under %v", ErrInvalid, ttl, MinTTL)
	}
	return CheckName(name)
}
