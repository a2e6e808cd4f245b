package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// A rig is what a test works with: a queue on a link that it can make to fail,
// and a client of the same Redis on a link that does not.
type rig struct {
	redis.UniversalClient
	open  backend
	name  string
	q     *queue.Queue
	link  *link                 // of q
	under redis.UniversalClient // the client of q
}

var rigs atomic.Int64

// newRig returns a rig with a queue of its own, whose keys are checked when the
// test has ended.
func newRig(tb testing.TB, open backend) *rig {
	tb.Helper()
	r := &rig{open: open, link: new(link)}
	r.UniversalClient = r.client(tb, new(link))
	r.under = r.client(tb, r.link)
	return r.another(tb, queue.Config{})
}

// another returns a rig with another queue over the same clients.
func (r *rig) another(tb testing.TB, cfg queue.Config) *rig {
	tb.Helper()
	other := *r
	other.name = fmt.Sprintf("%s#%d", tb.Name(), rigs.Add(1))
	other.q = newQueue(tb, r.under, other.name, cfg)
	tb.Cleanup(func() { other.check(tb) })
	return &other
}

func (r *rig) client(tb testing.TB, l *link) redis.UniversalClient {
	tb.Helper()
	client := r.open(l)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// queue returns the queue as another process would have it.
func (r *rig) queue(tb testing.TB, cfg queue.Config) (*queue.Queue, *link) {
	tb.Helper()
	l := new(link)
	return newQueue(tb, r.client(tb, l), r.name, cfg), l
}

func newQueue(tb testing.TB, rdb redis.UniversalClient, name string, cfg queue.Config) *queue.Queue {
	tb.Helper()
	q, err := queue.New(rdb, name, cfg)
	must(tb, err)
	return q
}

// A clock is a rig on a miniredis of its own, whose TIME stands still until it
// is moved. It starts far from the clock of the test, so that a time which does
// not come from the server shows.
type clock struct {
	*rig
	mini *miniredis.Miniredis
	time time.Time
}

func newClock(t *testing.T) *clock {
	t.Helper()
	m, _ := redistest.Mini(t)
	c := &clock{rig: newRig(t, dialing("tcp", m.Addr())), mini: m, time: time.UnixMicro(1_000_000_000_123_457)}
	m.SetTime(c.time)
	return c
}

// step moves the clock, and with it the times to live.
func (c *clock) step(d time.Duration) {
	c.time = c.time.Add(d)
	c.mini.SetTime(c.time)
	if d > 0 {
		c.mini.FastForward(d)
	}
}

func (r *rig) key(what string) string { return "duly:{" + r.name + "}:" + what }

// now is the server's clock.
func (r *rig) now(tb testing.TB) time.Time {
	tb.Helper()
	now, err := r.Time(context.Background()).Result()
	must(tb, err)
	return now
}

func task(id string) duly.Task {
	return duly.Task{ID: id, Kind: "test", Payload: []byte("payload of " + id)}
}

func (r *rig) enqueue(tb testing.TB, id string, opts ...queue.EnqueueOption) queue.Receipt {
	tb.Helper()
	receipt, err := r.q.Enqueue(tb.Context(), task(id), opts...)
	must(tb, err)
	return receipt
}

// pop pops with a lease of an hour, which ends in a test only if it lapses.
func (r *rig) pop(tb testing.TB, n int) []*duly.Delivery {
	tb.Helper()
	return popFrom(tb, r.q, n)
}

func popFrom(tb testing.TB, q *queue.Queue, n int) []*duly.Delivery {
	tb.Helper()
	deliveries, _, err := q.Pop(tb.Context(), n, time.Hour)
	must(tb, err)
	return deliveries
}

// popOne pops the task of an ID, which must be the only one there is.
func (r *rig) popOne(tb testing.TB, id string) *duly.Delivery {
	tb.Helper()
	deliveries := r.pop(tb, 2)
	if len(deliveries) != 1 || deliveries[0].ID != id {
		tb.Fatalf("popped %v, want %q alone", ids(deliveries), id)
	}
	return deliveries[0]
}

// settle settles deliveries alike, which must all be held.
func (r *rig) settle(tb testing.TB, action duly.Action, deliveries ...*duly.Delivery) {
	tb.Helper()
	var settlements []duly.Settlement
	for _, d := range deliveries {
		settlements = append(settlements, duly.Settlement{Delivery: d, Action: action, Err: errors.New("test")})
	}
	lost, err := r.q.Settle(tb.Context(), settlements)
	must(tb, err)
	if len(lost) > 0 {
		tb.Fatalf("the leases of %v are lost", ids(lost))
	}
}

// lapse lets the leases of deliveries run out.
func (r *rig) lapse(tb testing.TB, deliveries ...*duly.Delivery) {
	tb.Helper()
	for _, d := range deliveries {
		member := fmt.Sprintf("%d:%d%s", d.Fence, d.Due.UnixMicro(), named(d.ID, d.LockKey))
		changed, err := r.ZAddArgs(tb.Context(), r.key("leased"), redis.ZAddArgs{
			XX: true, Ch: true, Members: []redis.Z{{Score: 1, Member: member}},
		}).Result()
		must(tb, err)
		if changed != 1 {
			tb.Fatalf("%q is not leased", member)
		}
	}
}

// named is how a leased member ends.
func named(id, key string) string {
	if key != "" {
		return "@" + key + "\n" + id
	}
	return ":" + id
}

// bury brings a new task to the dead letter.
func (r *rig) bury(tb testing.TB, id string) {
	tb.Helper()
	r.enqueue(tb, id)
	r.settle(tb, duly.Buried, r.popOne(tb, id))
}

func (r *rig) get(tb testing.TB, id string) queue.Info {
	tb.Helper()
	info, err := r.q.Get(tb.Context(), id)
	must(tb, err)
	return info
}

func (r *rig) stats(tb testing.TB) queue.Stats {
	tb.Helper()
	stats, err := r.q.Stats(tb.Context())
	must(tb, err)
	return stats
}

// wantState fails the test unless the tasks are in a state.
func (r *rig) wantState(tb testing.TB, want queue.State, ids ...string) {
	tb.Helper()
	for _, id := range ids {
		if got := r.get(tb, id).State; got != want {
			tb.Fatalf("%q is %s, want %s", id, got, want)
		}
	}
}

func ids(deliveries []*duly.Delivery) []string {
	ids := make([]string, 0, len(deliveries))
	for _, d := range deliveries {
		ids = append(ids, d.ID)
	}
	return ids
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// wants fails the test unless err matches each of the targets.
func wants(tb testing.TB, err error, targets ...error) {
	tb.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			tb.Fatalf("got error %v, want one that matches %q", err, target)
		}
	}
}

// equal fails the test unless two values print alike.
func equal(tb testing.TB, what string, got, want any) {
	tb.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		tb.Fatalf("%s: got %s, want %s", what, g, w)
	}
}

// between fails the test unless from ≤ got ≤ to.
func between(tb testing.TB, what string, got, from, to time.Time) {
	tb.Helper()
	if got.Before(from) || got.After(to) {
		tb.Fatalf("%s is %v, want %v to %v", what, got, from, to)
	}
}

func zAt(id string, score float64) redis.Z { return redis.Z{Score: score, Member: id} }
