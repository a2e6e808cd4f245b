package lock

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A listener is the one subscription of a locker. It stands while somebody
// waits.
type listener struct {
	rdb     redis.UniversalClient
	channel string
	sharded atomic.Bool

	heard     func(key, token string)
	connected func(context.Context, bool)

	cancel context.CancelFunc // ends the subscription; nil: there is none
}

// start subscribes, unless that is done. The caller sees to it that start and
// stop are not called at once.
func (n *listener) start() {
	if n.cancel == nil {
		ctx, cancel := context.WithCancel(context.Background())
		n.cancel = cancel
		go n.run(ctx)
	}
}

// stop ends the subscription.
func (n *listener) stop() {
	if n.cancel != nil {
		n.cancel()
		n.cancel = nil
	}
}

// run subscribes again and again until ctx ends or the client is closed: at once
// after a subscription broke that has lasted, else with pauses.
func (n *listener) run(ctx context.Context) {
	pause := time.Duration(0)
	for ctx.Err() == nil {
		began := time.Now()
		err := n.listen(ctx)
		n.connected(ctx, false)
		if errors.Is(err, redis.ErrClosed) {
			return
		}
		if time.Since(began) > time.Second {
			pause = 0
		}
		if pause > 0 {
			_ = sleep(ctx, between(pause/2, pause))
		}
		pause = min(max(2*pause, 50*time.Millisecond), 2*time.Second)
	}
}

// listen hears one subscription, until it breaks.
func (n *listener) listen(ctx context.Context) error {
	subscribe := n.rdb.Subscribe
	sharded := n.sharded.Load()
	if sharded {
		subscribe = n.rdb.SSubscribe
	}
	sub := subscribe(ctx, n.channel)
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // receiving ignores ctx
	defer func() {
		if stop() {
			_ = sub.Close()
		}
	}()
	for asked := false; ; {
		got, err := sub.ReceiveTimeout(ctx, lookEvery)
		switch got := got.(type) {
		case *redis.Message:
			if i := strings.LastIndexByte(got.Payload, '\n'); i >= 0 {
				n.heard(got.Payload[:i], got.Payload[i+1:])
			}
		case *redis.Subscription:
			if strings.HasSuffix(got.Kind, "unsubscribe") {
				return nil // the slot has moved
			}
			n.connected(ctx, true)
		}
		switch silent := timedOut(err); {
		case err == nil:
			asked = false
		case silent && !asked && sub.Ping(ctx) == nil:
			asked = true // a connection that is dead is silent too
		default:
			if sharded && redis.HasErrorPrefix(err, "unknown command") {
				n.sharded.Store(false) // Redis before 7
			}
			return err
		}
	}
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}
