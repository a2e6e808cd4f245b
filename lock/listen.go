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

// Listen hears the messages of a channel until ctx ends or the client is closed,
// and calls heard with each. It calls connected with true when the subscription
// stands, and with false when that is over; what is said until it stands again is
// lost. It is made again at once if it has lasted for a second, else after a pause
// that grows from 50 ms to 2 s. A connection that says nothing for the time given is
// pinged, and given up if it does not answer within a second. The two are called one at
// a time, and what takes long in them holds up the rest.
func Listen(ctx context.Context, rdb redis.UniversalClient, channel string, silence time.Duration, heard func(payload string), connected func(bool)) {
	s := subscription{rdb: rdb, channel: channel, silence: silence}
	s.run(ctx, heard, connected)
}

// A listener hears what a node publishes, while somebody waits.
type listener struct {
	subscription

	heard     func(key, token string)
	connected func(context.Context, bool)

	cancel context.CancelFunc // ends the subscription; nil: there is none
}

// start subscribes, unless that is done. The caller sees to it that start and
// stop are not called at once.
func (l *listener) start() {
	if l.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	go l.run(ctx, func(payload string) {
		if i := strings.LastIndexByte(payload, '\n'); i >= 0 {
			l.heard(payload[:i], payload[i+1:])
		}
	}, func(hears bool) { l.connected(ctx, hears) })
}

// stop ends the subscription.
func (l *listener) stop() {
	if l.cancel != nil {
		l.cancel()
		l.cancel = nil
	}
}

// publish is the command by which waiters are told.
func (n *node) publish() string {
	switch {
	case n.deaf():
		return ""
	case n.sharded():
		return "SPUBLISH"
	}
	return "PUBLISH"
}

// listener hears what this node publishes; nil if nothing is to be heard.
func (n *node) listener() *listener {
	if n.deaf() {
		return nil
	}
	l := &listener{subscription: subscription{rdb: n.rdb, channel: n.channel, silence: lookEvery}}
	l.sharded.Store(n.sharded())
	return l
}

// deaf says that nothing is published or heard: on the shards of a Ring a channel
// is where its own tag says, and not where the lock is.
func (n *node) deaf() bool {
	_, ring := n.rdb.(*redis.Ring)
	return n.cfg.PollOnly || ring && !n.cfg.tagged()
}

// sharded says whether the channel lives in the slot of the keys, where a
// cluster need not tell all of its nodes.
func (n *node) sharded() bool {
	_, cluster := n.rdb.(*redis.ClusterClient)
	return cluster && n.cfg.tagged()
}

// A subscription is to one channel, again and again.
type subscription struct {
	rdb     redis.UniversalClient
	channel string
	silence time.Duration
	sharded atomic.Bool // in the slot of the channel's name
}

// run is Listen.
func (s *subscription) run(ctx context.Context, heard func(payload string), connected func(bool)) {
	pause := time.Duration(0)
	for ctx.Err() == nil {
		lasted, err := s.hear(ctx, heard, connected)
		if errors.Is(err, redis.ErrClosed) {
			return
		}
		if lasted > time.Second { // without what it took to fail
			pause = 0
		}
		if pause > 0 {
			_ = sleep(ctx, between(pause*3/4, pause))
		}
		pause = min(max(2*pause, 50*time.Millisecond), 2*time.Second)
	}
}

// answerWithin is the patience with a connection that is to confirm a subscription, or
// to answer a ping: one that is dead is silent, and where go-redis connects anew while
// it subscribes, the new one has no subscription.
const answerWithin = time.Second

// hear hears one subscription, until it breaks, and returns how long it stood.
func (s *subscription) hear(ctx context.Context, heard func(payload string), connected func(bool)) (lasted time.Duration, err error) {
	sharded := s.sharded.Load()
	sub, err := s.subscribe(ctx, sharded)
	if err != nil {
		return 0, err
	}
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // receiving ignores ctx
	defer func() {
		if stop() {
			_ = sub.Close()
		}
	}()
	var stands time.Time // since when
	defer func() {
		if !stands.IsZero() {
			lasted = time.Since(stands)
			connected(false)
		}
	}()
	for patience, tried := answerWithin, true; ; {
		got, err := sub.ReceiveTimeout(ctx, patience)
		switch silent := timedOut(err); {
		case err == nil:
			patience, tried = s.silence, false
		case silent && !tried && sub.Ping(ctx) == nil:
			patience, tried = answerWithin, true
		default:
			if sharded && redis.HasErrorPrefix(err, "unknown command") {
				s.sharded.Store(false) // Redis before 7
			}
			return 0, err
		}
		switch got := got.(type) {
		case *redis.Message:
			heard(got.Payload)
		case *redis.Subscription:
			if strings.HasSuffix(got.Kind, "unsubscribe") {
				return 0, nil // the slot has moved
			}
			if stands.IsZero() {
				stands = time.Now()
			}
			connected(true)
		}
	}
}

// subscribe subscribes, and tells if that failed: go-redis does not if it is given the
// channel at once, and connects again with each receive. Only a Ring must be given it,
// and panics with an error when it is closed.
func (s *subscription) subscribe(ctx context.Context, sharded bool) (sub *redis.PubSub, err error) {
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case error:
			err = cause
		default:
			panic(cause)
		}
	}()
	if _, ring := s.rdb.(*redis.Ring); ring {
		return s.rdb.Subscribe(ctx, s.channel), nil
	}
	if sharded {
		sub = s.rdb.SSubscribe(ctx)
		err = sub.SSubscribe(ctx, s.channel)
	} else {
		sub = s.rdb.Subscribe(ctx)
		err = sub.Subscribe(ctx, s.channel)
	}
	if err != nil {
		_ = sub.Close()
		return nil, err
	}
	return sub, nil
}

func timedOut(err error) bool {
	var netErr net.Error
	return errors.As(err, &netErr) && netErr.Timeout()
}
