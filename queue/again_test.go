package queue_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// A holds the key by a pop whose reply is lost. Meanwhile a task of the key that was
// due before it is parked: a tick that had just passed when it was registered. The
// repeated pop must not park A and leave its lock behind.
func TestARepeatedPopDoesNotParkTheHolderOfItsKey(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	other, _ := r.queue(t, queue.Config{})
	recurring := duly.Task{ID: "tick", Kind: "test", LockKey: "key", Every: "@hourly"}
	_, err := r.q.Recur(t.Context(), recurring, func(now time.Time) time.Time {
		time.Sleep(2 * time.Millisecond) // on the way to Redis and back
		a := task("a")
		a.LockKey = "key"
		_, err := other.Enqueue(t.Context(), a)
		must(t, err)
		r.link.lose()
		_, _, err = r.q.Pop(t.Context(), 5, time.Hour) // leases a
		wants(t, err, queue.ErrUnknownOutcome)
		return now.Add(time.Millisecond) // the first tick after the server's now
	})
	must(t, err)
	equal(t, "popped by another", ids(popFrom(t, other, 5)), []string{})
	r.wantState(t, queue.Parked, "tick")

	ds := r.pop(t, 5)
	t.Logf("the repeated pop brings %v", ids(ds))
	ds = append(ds, popFrom(t, other, 5)...)
	holder, err := r.Get(t.Context(), r.key("lock:key")).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		must(t, err)
	}
	ttl := r.PTTL(t.Context(), r.key("lock:key")).Val()
	if len(ds) != 1 {
		t.Errorf("%d of the two tasks run; a is %s, tick is %s, the lock is %q for %v", len(ds), r.get(t, "a").State, r.get(t, "tick").State, holder, ttl)
	}
}

// What a repeated pop gives back makes room under the limit of running tasks, and is
// due at once: those who wait for that are told.
func TestARepeatedPopForFewerTellsThatThereIsRoom(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	other, _ := r.queue(t, queue.Config{})
	r.limit(t, queue.Limits{Running: 3})
	for _, id := range []string{"a", "b", "c"} {
		r.enqueue(t, id)
	}
	r.link.lose()
	_, _, err := r.q.Pop(t.Context(), 3, time.Hour)
	wants(t, err, queue.ErrUnknownOutcome)
	ds, wait, err := other.Pop(t.Context(), 3, time.Hour)
	must(t, err)
	equal(t, "popped by another", ids(ds), []string{})
	t.Logf("the other is to wait for %v", wait)
	n := r.heard(t, func() { equal(t, "repeated", ids(r.pop(t, 1)), []string{"a"}) })
	s := r.stats(t)
	equal(t, "ready, leased", []int{s.Ready, s.Leased}, []int{2, 1})
	if n == 0 {
		t.Errorf("nobody was told that b and c may be had")
	}
}
