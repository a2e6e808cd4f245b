package main

import (
	"context"
	"errors"
	"time"
)

// linkDelay is what the rtt suite adds to each direction.
const linkDelay = 500 * time.Microsecond

// rttSuite measures a worker whose server is a millisecond away.
func rttSuite(ctx context.Context, r *rig) error {
	out := leaveOut{"river": "its server is not Redis", "river-tuned": "its server is not Redis"}
	sizes := newSizes(r.scale.process)
	return r.alternate(ctx, "rtt", r.rounds, out, func(ctx context.Context, t *trial) (err error) {
		l, err := startLink(ctx, t.redis.addr, linkDelay)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.stop()) }()
		if err := t.ping(ctx, l.addr); err != nil {
			return err
		}
		return t.process(ctx, fullSpeed, sizes, l.addr, fullSpeed.String())
	})
}

// ping reports what a round trip by way of addr takes at its quickest.
func (t *trial) ping(ctx context.Context, addr string) error {
	rdb := newRedisClient(addr)
	defer func() { _ = rdb.Close() }()
	least := time.Hour
	for range 100 {
		start := time.Now()
		if err := rdb.Ping(ctx).Err(); err != nil {
			return err
		}
		least = min(least, time.Since(start))
	}
	t.record("round trip of a PING, the quickest of 100", "ms", least.Seconds()*1000)
	return nil
}
