package queue

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dulyhq/duly/lock"
)

// Limits of what a queue takes. They are checked before anything is sent; the
// error matches [ErrInvalid].
const (
	MaxName    = 200       // bytes of a queue's name
	MaxID      = 512       // bytes of a task's ID
	MaxKind    = 200       // bytes of a task's kind
	MaxEvery   = 200       // bytes of a task's schedule
	MaxHeaders = 64        // headers of a task; their bytes count as payload
	MaxBatch   = 500       // tasks of one Pop, and of one script: some 2 ms of Redis, which serves nobody else meanwhile
	MaxPage    = 1_000     // tasks of one List or Peek
	MaxError   = 1_024     // bytes of an error's text that are kept
	MaxDue     = 1<<53 - 1 // latest due time in µs since 1970: the year 2255

	MaxDelay  = 200 * 365 * 24 * time.Hour
	MaxRetain = 365 * 24 * time.Hour
	MinLease  = 10 * time.Millisecond
	MaxLease  = 24 * time.Hour
)

// ErrInvalid means that an argument is out of its bounds. Nothing was sent.
var ErrInvalid = lock.ErrInvalid

// Config holds a queue's settings; the zero value is ready to use. Processes
// that share a queue must agree on Prefix.
type Config struct {
	// Prefix begins every key. Default: "duly".
	Prefix string

	// MaxPayload bounds a task's payload and headers together, in bytes.
	// Default: 1 MiB; at most 64 MiB.
	MaxPayload int

	// MaxCrashes is how many leases in a row may run out, because workers died
	// or hung, before a task is buried. Default: 3; at least 1.
	MaxCrashes int

	// ReplicaAcks is how many replicas must have a task before it counts as
	// enqueued: Redis is asked by WAIT in the same round trip, for a second at most;
	// then the error matches [ErrUnreplicated]. A task that was confirmed outlasts
	// the failover to any replica that has it; Redis may prefer another. Default: 0;
	// at most 16.
	ReplicaAcks int
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = "duly"
	}
	if c.MaxPayload == 0 {
		c.MaxPayload = 1 << 20
	}
	if c.MaxCrashes == 0 {
		c.MaxCrashes = 3
	}
	return c
}

func (c Config) validate() error {
	if err := checkName("Prefix", c.Prefix, MaxName); err != nil {
		return err
	}
	switch {
	case c.MaxPayload < 0 || c.MaxPayload > 64<<20:
		return fmt.Errorf("%w: MaxPayload %d is not between 1 and %d", ErrInvalid, c.MaxPayload, 64<<20)
	case c.MaxCrashes < 0:
		return fmt.Errorf("%w: MaxCrashes %d is under 1", ErrInvalid, c.MaxCrashes)
	case c.ReplicaAcks < 0 || c.ReplicaAcks > 16:
		return fmt.Errorf("%w: ReplicaAcks %d is not between 0 and 16", ErrInvalid, c.ReplicaAcks)
	}
	return nil
}

// checkName checks what becomes part of a key: text without braces, which would
// move its cluster slot.
func checkName(what, s string, most int) error {
	if err := checkText(what, s, most); err != nil {
		return err
	}
	if strings.ContainsAny(s, "{}") {
		return fmt.Errorf("%w: %s %q has a brace", ErrInvalid, what, s)
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

func checkBatch(n int) error {
	if n < 1 || n > MaxBatch {
		return fmt.Errorf("%w: batch of %d, not between 1 and %d", ErrInvalid, n, MaxBatch)
	}
	return nil
}

func checkLease(d time.Duration) error {
	if d < MinLease || d > MaxLease {
		return fmt.Errorf("%w: lease %v is not between %v and %v", ErrInvalid, d, MinLease, MaxLease)
	}
	return nil
}
