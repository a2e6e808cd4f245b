package queue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
)

// A State is where a task stands in its queue.
type State string

// The states. A task that is parked is due as well: verbs that act on due tasks act
// on it too, and answer Due.
const (
	Missing State = "missing" // not in the queue: never there, or ended and not kept
	Due     State = "due"     // waits for its due time, or for a worker
	Parked  State = "parked"  // could run now, but for its lock key
	Leased  State = "leased"  // handed out
	Dead    State = "dead"    // in the dead letter
	Done    State = "done"    // done, and kept for as long as it asked for
)

// A Queue is a named set of tasks in Redis. Its methods may be called
// concurrently. It holds no connection but while a Wait goes on, and needs no
// closing.
type Queue struct {
	rdb    redis.UniversalClient
	name   string
	cfg    Config
	keys   keys
	locker *lock.Locker // of the application, and of tasks with a lock key
	terms  string       // of locker, for scripts
	self   *lock.Locker // of the queue's own lock
	pops   chan turn    // the next pop's; who holds it may pop

	coalescer coalescer // of Enqueue
	waits     waits     // of Wait
}

// New returns the queue of a name: 1 to 200 bytes of UTF-8 without control
// characters and braces. It sends nothing; a queue exists while it has tasks.
// The client stays the caller's to close.
func New(rdb redis.UniversalClient, name string, cfg Config) (*Queue, error) {
	if v := reflect.ValueOf(rdb); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, fmt.Errorf("queue: %w: nil client", ErrInvalid)
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	if err := checkName("queue name", name, MaxName); err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	q := &Queue{rdb: rdb, name: name, cfg: cfg, keys: newKeys(cfg.Prefix, name, rand.Uint64()), pops: make(chan turn, 1)} //nolint:gosec // tells instances apart, secures nothing
	q.pops <- turn{number: 1}
	q.coalescer.send = q.send
	listen := func(ctx context.Context, heard func(string), connected func(bool)) {
		lock.Listen(ctx, rdb, q.keys.ended, lookEvery, heard, connected)
	}
	q.waits = waits{look: q.look, listen: listen, byID: make(map[string][]*waiter)}
	var err error
	q.locker, err = lock.New(rdb, lock.Config{
		Prefix: q.keys.lockPrefix, FenceKey: q.keys.fence, Parked: q.keys.blocked, ParkedWake: q.keys.wake,
	})
	if err == nil {
		q.terms, err = q.locker.Terms()
	}
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	q.self, err = lock.New(rdb, lock.Config{Prefix: q.keys.ownPrefix(), FenceKey: q.keys.fence})
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	return q, nil
}

// Name is the queue's name.
func (q *Queue) Name() string { return q.name }

// Locker gives out leases on the names that are lock keys of tasks: while the
// application holds "order:42", no task of that LockKey runs, and while one runs,
// the application waits. Who waits here goes before the tasks that are parked. Their
// fences come from the same counter as those of deliveries, so a store can compare
// them; those of two queues cannot be compared, nor do their lock keys exclude each
// other.
func (q *Queue) Locker() *lock.Locker { return q.locker }

// tokenKey finds the token of the queue's own lock in a context.
type tokenKey struct{}

// Lock runs f while holding the queue's own lock, waiting for it until ctx ends:
// until f returns, no pop succeeds but those made with f's context. It is for
// jobs of several steps, such as moving tasks elsewhere; single verbs need no
// lock. What it returns and how a lost lock is told is as in [lock.Locker.Do].
func (q *Queue) Lock(ctx context.Context, ttl time.Duration, f func(context.Context) error) error {
	locked := false
	err := q.self.Do(ctx, ownLock, ttl, func(ctx context.Context, l *lock.Lease) error {
		locked = true
		return f(context.WithValue(ctx, tokenKey{}, l.Token()))
	})
	if locked {
		_ = q.rdb.Publish(ctx, q.keys.wake, "unlocked").Err() // a hint; without it they poll
	}
	return err
}
