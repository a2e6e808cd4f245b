package main

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
)

// A locking is one of the systems that are compared at locks.
type locking interface {
	contender

	// open connects to a server as one process does that has so many callers.
	// What its client sends is counted in sent.
	open(ctx context.Context, addr string, callers int, sent *atomic.Int64) (locker, error)
}

// A locker is a locking that is connected to its server. It may be used
// concurrently.
type locker interface {
	// acquire waits for the lock of a name until ctx ends.
	acquire(ctx context.Context, name string) (held, error)

	// close disconnects.
	close() error
}

// held is a lock in the hands of its holder.
type held interface {
	release(ctx context.Context) error
}

// lockTTL is the TTL of every lock that has one: redsync's default.
const lockTTL = 8 * time.Second

// dulyLocking is duly's with every setting at its default.
type dulyLocking struct{}

func (dulyLocking) name() string     { return "duly" }
func (dulyLocking) kind() serverKind { return onRedis }

func (dulyLocking) open(_ context.Context, addr string, _ int, sent *atomic.Int64) (locker, error) {
	rdb := newCountedClient(addr, sent)
	l, err := lock.New(rdb, lock.Config{})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return dulyLocker{rdb, l}, nil
}

type dulyLocker struct {
	rdb    *redis.Client
	locker *lock.Locker
}

func (l dulyLocker) acquire(ctx context.Context, name string) (held, error) {
	lease, err := l.locker.Acquire(ctx, name, lockTTL)
	return dulyHeld{lease}, err
}

func (l dulyLocker) close() error { return l.rdb.Close() }

type dulyHeld struct{ lease *lock.Lease }

func (h dulyHeld) release(ctx context.Context) error { return h.lease.Release(ctx) }

// redislockPause is the pause between two tries in redislock's own example of
// how to wait.
const redislockPause = 100 * time.Millisecond

// redislockLocking waits as that example does, without its limit of three tries.
type redislockLocking struct{}

func (redislockLocking) name() string     { return "redislock" }
func (redislockLocking) kind() serverKind { return onRedis }

func (redislockLocking) open(_ context.Context, addr string, _ int, sent *atomic.Int64) (locker, error) {
	rdb := newCountedClient(addr, sent)
	return redislockLocker{rdb, redislock.New(rdb)}, nil
}

type redislockLocker struct {
	rdb    *redis.Client
	client *redislock.Client
}

// acquire needs a ctx with a deadline: otherwise redislock gives up after the
// TTL.
func (l redislockLocker) acquire(ctx context.Context, name string) (held, error) {
	lock, err := l.client.Obtain(ctx, name, lockTTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockPause)})
	return redislockHeld{lock}, err
}

func (l redislockLocker) close() error { return l.rdb.Close() }

type redislockHeld struct{ lock *redislock.Lock }

func (h redislockHeld) release(ctx context.Context) error { return h.lock.Release(ctx) }

// redsyncLocking has every setting at its default, but for the number of tries,
// of which there are enough for nobody to give up.
type redsyncLocking struct{}

func (redsyncLocking) name() string     { return "redsync" }
func (redsyncLocking) kind() serverKind { return onRedis }

func (redsyncLocking) open(_ context.Context, addr string, _ int, sent *atomic.Int64) (locker, error) {
	rdb := newCountedClient(addr, sent)
	return redsyncLocker{rdb, redsync.New(goredis.NewPool(rdb))}, nil
}

type redsyncLocker struct {
	rdb  *redis.Client
	sync *redsync.Redsync
}

func (l redsyncLocker) acquire(ctx context.Context, name string) (held, error) {
	mutex := l.sync.NewMutex(name, redsync.WithTries(math.MaxInt32))
	return redsyncHeld{mutex}, mutex.LockContext(ctx)
}

func (l redsyncLocker) close() error { return l.rdb.Close() }

type redsyncHeld struct{ mutex *redsync.Mutex }

func (h redsyncHeld) release(ctx context.Context) error {
	ok, err := h.mutex.UnlockContext(ctx)
	if err == nil && !ok {
		err = errors.New("not unlocked")
	}
	return err
}

// advisoryLocking is PostgreSQL's own, of a session: it has no TTL, and who
// waits occupies a connection.
type advisoryLocking struct{}

func (advisoryLocking) name() string     { return "pg-advisory" }
func (advisoryLocking) kind() serverKind { return onPostgres }

func (advisoryLocking) open(ctx context.Context, addr string, callers int, sent *atomic.Int64) (locker, error) {
	cfg, err := pgxpool.ParseConfig(addr)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = int32(callers) //nolint:gosec // a few
	cfg.ConnConfig.Tracer = statements{sent}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return advisoryLocker{pool}, nil
}

type advisoryLocker struct{ pool *pgxpool.Pool }

func (l advisoryLocker) acquire(ctx context.Context, name string) (held, error) {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", name); err != nil {
		conn.Release()
		return nil, err
	}
	return advisoryHeld{conn, name}, nil
}

func (l advisoryLocker) close() error {
	l.pool.Close()
	return nil
}

type advisoryHeld struct {
	conn *pgxpool.Conn
	name string
}

func (h advisoryHeld) release(ctx context.Context) error {
	defer h.conn.Release()
	var ok bool
	err := h.conn.QueryRow(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", h.name).Scan(&ok)
	if err == nil && !ok {
		err = errors.New("not unlocked")
	}
	return err
}

// statements counts those that pgx sends.
type statements struct{ sent *atomic.Int64 }

func (s statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	s.sent.Add(1)
	return ctx
}

func (statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
