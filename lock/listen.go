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
func (s *listener) start() {
	if s.cancel == nil {
		ctx, cancel := context.WithCancel(context.Background())
		s.cancel = cancel
		go s.run(ctx)
	}
}

// stop ends the subscription.
func (s *listener) stop() {
	if s.cancel != nil {
		s.cancel()
		s.cancel = nil
	}
}

// run subscribes again and again until ctx ends or the client is closed: at once
// after a subscription broke that has lasted, else with pauses.
func (s *listener) run(ctx context.Context) {
	pause := time.Duration(0)
	for ctx.Err() == nil {
		began := time.Now()
		err := s.listen(ctx)
		s.connected(ctx, false)
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
func (s *listener) listen(ctx context.Context) error {
	sharded := s.sharded.Load()
	sub, err := s.subscribe(ctx, sharded)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // receiving ignores ctx
	defer func() {
		if stop() {
			_ = sub.Close()
		}
	}()
	patience := time.Second // where go-redis connects anew while it subscribes, the new connection does not
	for asked := false; ; {
		got, err := sub.ReceiveTimeout(ctx, patience)
		switch got := got.(type) {
		case *redis.Message:
			if i := strings.LastIndexByte(got.Payload, '\n'); i >= 0 {
				s.heard(got.Payload[:i], got.Payload[i+1:])
			}
		case *redis.Subscription:
			if strings.HasSuffix(got.Kind, "unsubscribe") {
				return nil // the slot has moved
			}
			patience = lookEvery
			s.connected(ctx, true)
		}
		switch silent := timedOut(err); {
		case err == nil:
			asked = false
		case silent && patience == lookEvery && !asked && sub.Ping(ctx) == nil:
			asked = true // a connection that is dead is silent too
		default:
			if sharded && redis.HasErrorPrefix(err, "unknown command") {
				s.sharded.Store(false) // Redis before 7
			}
			return err
		}
	}
}

// subscribe returns the error with which go-redis panics when a Ring is closed.
func (s *listener) subscribe(ctx context.Context, sharded bool) (sub *redis.PubSub, err error) {
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case error:
			err = cause
		default:
			panic(cause)
		}
	}()
	if sharded {
		return s.rdb.SSubscribe(ctx, s.channel), nil
	}
	return s.rdb.Subscribe(ctx, s.channel), nil
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}
