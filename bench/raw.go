package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// rawBatch is how many tasks the ceiling takes at a time.
const rawBatch = 500

// rawPoll is how long it sleeps when nothing is due.
const rawPoll = time.Millisecond

// rawLease is how long a lease of the leased ceiling would last.
const rawLease = 15 * time.Second

// The keys of the ceiling.
const (
	rawDue    = "raw:{bench}:due"
	rawLeased = "raw:{bench}:leased"
	rawTask   = "raw:{bench}:task"
)

// rawSystem is the ceiling: what Redis and go-redis allow for a sorted set of
// due times and a hash of payloads, by plain variadic commands. There is no
// lease, so a crash loses tasks; no check for duplicates; and no second worker,
// which would run tasks twice.
//
// The leased one also keeps what it has taken in a second sorted set until it
// has run, by the same plain commands: the least that a system can do which is
// to survive a crash. It still checks nothing, and does not look for leases
// that have run out.
type rawSystem struct{ leased bool }

func (s rawSystem) name() string {
	if s.leased {
		return leasedCeiling
	}
	return ceiling
}

func (rawSystem) kind() serverKind { return onRedis }

func (s rawSystem) open(_ context.Context, addr string) (session, error) {
	return &rawSession{newRedisClient(addr), s.leased}, nil
}

type rawSession struct {
	rdb    *redis.Client
	leased bool
}

func (s *rawSession) enqueue(ctx context.Context, t task) error {
	return s.enqueueMany(ctx, []task{t})
}

// enqueueMany is one round trip of two commands.
func (s *rawSession) enqueueMany(ctx context.Context, tasks []task) error {
	now := time.Now()
	zadd := make([]any, 2, 2+2*len(tasks))
	hset := make([]any, 2, 2+2*len(tasks))
	zadd[0], zadd[1], hset[0], hset[1] = "zadd", rawDue, "hset", rawTask
	for _, t := range tasks {
		due := t.due
		if due.IsZero() {
			due = now
		}
		zadd = append(zadd, due.UnixMicro(), t.id)
		hset = append(hset, t.id, t.payload)
	}
	pipe := s.rdb.Pipeline()
	pipe.Do(ctx, zadd...)
	pipe.Do(ctx, hset...)
	_, err := pipe.Exec(ctx)
	return err
}

// work runs stages side by side: one takes IDs, one takes their payloads, a pool
// of goroutines calls the handler, and with leases one removes what has run.
// Each is a round trip a batch, and none waits for another.
func (s *rawSession) work(ctx context.Context, concurrency int, h handler) (func() error, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	batches := make(chan []string, 2)
	parts := make(chan []string, concurrency)
	ended := make(chan []string, concurrency)
	var wg, pool sync.WaitGroup
	wg.Go(func() {
		defer close(batches)
		cancel(s.take(ctx, batches))
	})
	wg.Go(func() {
		defer close(parts)
		if err := s.fetch(context.WithoutCancel(ctx), batches, parts, concurrency); err != nil {
			cancel(err)
		}
	})
	for range concurrency {
		pool.Go(func() {
			for part := range parts {
				for _, id := range part {
					h(id)
				}
				ended <- part
			}
		})
	}
	wg.Go(func() {
		if err := s.settle(context.WithoutCancel(ctx), ended); err != nil {
			cancel(err)
		}
	})
	wg.Go(func() {
		pool.Wait()
		close(ended)
	})
	return func() error {
		cancel(nil)
		wg.Wait()
		if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
			return err
		}
		return nil
	}, nil
}

// take sends batches of due IDs: it looks for the next and removes the one
// before in the same round trip.
func (s *rawSession) take(ctx context.Context, batches chan<- []string) error {
	lasting := context.WithoutCancel(ctx) // for what has been sent has to be removed
	var ids []string
	for ctx.Err() == nil || len(ids) > 0 {
		pipe := s.rdb.Pipeline()
		if len(ids) > 0 {
			pipe.Do(lasting, rawArgs("zrem", rawDue, ids)...)
			if s.leased {
				pipe.Do(lasting, rawLeases(ids)...)
			}
		}
		next := pipe.ZRangeArgs(lasting, redis.ZRangeArgs{
			Key: rawDue, ByScore: true, Start: "-inf", Stop: strconv.FormatInt(time.Now().UnixMicro(), 10), Count: rawBatch,
		})
		if _, err := pipe.Exec(lasting); err != nil {
			return err
		}
		if ids = next.Val(); ctx.Err() != nil {
			return nil
		}
		if len(ids) == 0 {
			time.Sleep(rawPoll)
			continue
		}
		batches <- ids
	}
	return nil
}

// fetch reads and removes the payloads of batches, and deals each batch out to
// the pool in parts.
func (s *rawSession) fetch(ctx context.Context, batches <-chan []string, parts chan<- []string, pool int) error {
	for ids := range batches {
		pipe := s.rdb.Pipeline()
		got := pipe.HMGet(ctx, rawTask, ids...)
		if !s.leased {
			pipe.Do(ctx, rawArgs("hdel", rawTask, ids)...)
		}
		if _, err := pipe.Exec(ctx); err != nil {
			for range batches { // so that take does not block
			}
			return err
		}
		if len(got.Val()) != len(ids) {
			return errors.New("raw: payloads are missing")
		}
		size := (len(ids) + pool - 1) / pool
		for first := 0; first < len(ids); first += size {
			parts <- ids[first:min(first+size, len(ids))]
		}
	}
	return nil
}

// settle removes what has run: with leases, in batches of what has come to an
// end meanwhile.
func (s *rawSession) settle(ctx context.Context, ended <-chan []string) error {
	for part := range ended {
		ids := slices.Clone(part)
		for more := true; more && len(ids) < rawBatch; {
			select {
			case part, open := <-ended:
				ids, more = append(ids, part...), open
			default:
				more = false
			}
		}
		if !s.leased {
			continue
		}
		pipe := s.rdb.Pipeline()
		pipe.Do(ctx, rawArgs("zrem", rawLeased, ids)...)
		pipe.Do(ctx, rawArgs("hdel", rawTask, ids)...)
		if _, err := pipe.Exec(ctx); err != nil {
			for range ended { // so that the pool does not block
			}
			return err
		}
	}
	return nil
}

func rawLeases(ids []string) []any {
	args := make([]any, 2, 2+2*len(ids))
	args[0], args[1] = "zadd", rawLeased
	until := strconv.FormatInt(time.Now().Add(rawLease).UnixMicro(), 10)
	for _, id := range ids {
		args = append(args, until, id)
	}
	return args
}

func rawArgs(command, key string, ids []string) []any {
	args := make([]any, 2, 2+len(ids))
	args[0], args[1] = command, key
	for _, id := range ids {
		args = append(args, id)
	}
	return args
}

func (s *rawSession) unsettled(ctx context.Context) (int, error) {
	n, err := s.rdb.HLen(ctx, rawTask).Result()
	return int(n), err
}

func (s *rawSession) batches() bool { return true }

func (s *rawSession) close() error { return s.rdb.Close() }

// load adds tasks in batches, whatever their due times.
func (s *rawSession) load(ctx context.Context, tasks []task) error {
	for first := 0; first < len(tasks); first += 1000 {
		if err := s.enqueueMany(ctx, tasks[first:min(first+1000, len(tasks))]); err != nil {
			return err
		}
	}
	return nil
}
