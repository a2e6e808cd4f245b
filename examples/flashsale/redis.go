package main

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// openRedis connects to the Redis of a URL.
func openRedis(url string) (*redis.Client, error) {
	opts, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("REDIS_URL: %w", err)
	}
	opts.ContextTimeoutEnabled = true
	// A plain Redis does not know these.
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(opts), nil
}

// embedRedis starts a Redis in this process, on a loopback port for the workers
// to find, and returns its URL.
func embedRedis() (url string, stop func(), err error) {
	m, err := miniredis.Run()
	if err != nil {
		return "", nil, fmt.Errorf("embedded Redis: %w", err)
	}
	ended := make(chan struct{})
	go tick(m, ended)
	return "redis://" + m.Addr(), func() { close(ended); m.Close() }, nil
}

// tick moves the clock by which miniredis ends keys, which stands still by
// itself: without it a lock whose holder was killed would stay for ever. A key
// made since the last tick loses up to 10 ms, less than what a lease keeps in
// reserve of a TTL of seconds.
func tick(m *miniredis.Miniredis, ended <-chan struct{}) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	last := time.Now()
	for {
		select {
		case <-ticker.C:
			now := time.Now()
			m.FastForward(now.Sub(last))
			last = now
		case <-ended:
			return
		}
	}
}

// forget removes a queue's keys from a Redis that is shared with others. It is
// for a queue that nobody uses any more.
func forget(ctx context.Context, rdb *redis.Client, queueName string) error {
	keys := rdb.Scan(ctx, 0, "duly:{"+queueName+"}:*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := rdb.Unlink(ctx, keys.Val()).Err(); err != nil {
			return fmt.Errorf("forget the queue: %w", err)
		}
	}
	return wrap("forget the queue", keys.Err())
}
