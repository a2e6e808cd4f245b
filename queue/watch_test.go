package queue_test

import (
	"context"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// watch watches the rig's queue until it is stopped or the test ends. The first
// hint, that of the connection, has come.
func watch(t *testing.T, r *rig) (hinted <-chan struct{}, stop func()) {
	t.Helper()
	hints := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.q.Watch(ctx, func(time.Duration) { hints <- struct{}{} }, func(string, uint64) {})
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	awaitHint(t, hints)
	return hints, stop
}

func awaitHint(t *testing.T, hints <-chan struct{}) {
	t.Helper()
	select {
	case <-hints:
	case <-time.After(10 * time.Second):
		t.Fatal("no hint in 10 s")
	}
}

// noHint checks that f brings none. A message of the test's own, sent behind f,
// is the only one to arrive.
func noHint(t *testing.T, r *rig, hints <-chan struct{}, f func()) {
	t.Helper()
	f()
	must(t, r.Publish(t.Context(), r.key("wake"), "end").Err())
	awaitHint(t, hints)
	must(t, r.Publish(t.Context(), r.key("wake"), "end").Err())
	awaitHint(t, hints)
	if len(hints) != 0 {
		t.Fatalf("%d hints too many", len(hints))
	}
}

func TestWatchHintsWhenTheHeadMovesEarlierAndNotOtherwise(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		hints, _ := watch(t, r)
		ctx := t.Context()
		hint := func(what string, f func()) {
			t.Helper()
			t.Log(what)
			f()
			awaitHint(t, hints)
			noHint(t, r, hints, func() {})
		}
		none := func(what string, f func()) {
			t.Helper()
			t.Log(what)
			noHint(t, r, hints, f)
		}
		hint("the first task", func() { r.enqueue(t, "a", queue.In(2*time.Hour)) })
		none("a later task", func() { r.enqueue(t, "b", queue.In(3*time.Hour)) })
		none("a duplicate", func() { r.enqueue(t, "a") })
		none("an equal task", func() { r.enqueue(t, "c", queue.At(r.get(t, "a").At)) })
		hint("an earlier task", func() { r.enqueue(t, "d", queue.In(time.Hour)) })
		none("one moved, but not to the head", func() { _, _ = r.q.Reschedule(ctx, "b", queue.In(90*time.Minute)) })
		hint("one moved to the head", func() { _, _ = r.q.Reschedule(ctx, "b", queue.In(time.Minute)) })
		hint("one replaced by an earlier", func() { r.enqueue(t, "c", queue.OnConflict(queue.Earliest)) })
		var d []*duly.Delivery
		none("a pop", func() { d = r.pop(t, 1) })
		none("a retry in far", func() {
			_, err := r.q.Settle(ctx, []duly.Settlement{{Delivery: d[0], Action: duly.Retried, In: time.Hour}})
			must(t, err)
		})
		none("a cancelled head", func() { _, _ = r.q.Cancel(ctx, "b") })
		hint("a released task", func() {
			r.enqueue(t, "e")
			awaitHint(t, hints)
			r.settle(t, duly.Released, r.pop(t, 1)...)
		})
		d = r.pop(t, 1)
		none("a burial", func() { r.settle(t, duly.Buried, d...) })
		hint("a revival", func() { _, _ = r.q.Revive(ctx, "e") })
		none("a pause", func() { must(t, r.q.Pause(ctx)) })
		hint("the end of a pause", func() { must(t, r.q.Resume(ctx)) })
		hint("the end of a job under the queue's lock", func() {
			must(t, r.q.Lock(ctx, time.Minute, func(context.Context) error { return nil }))
		})
	})
}

func TestAHintTellsHowLongItIs(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		hints := make(chan time.Duration, 100)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.q.Watch(ctx, func(in time.Duration) { hints <- in }, func(string, uint64) {})
		}()
		defer func() { cancel(); <-done }()
		next := func(what string, least, most time.Duration) {
			t.Helper()
			select {
			case in := <-hints:
				if in < least || in > most {
					t.Errorf("%s: hinted in %v, want %v to %v", what, in, least, most)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: no hint in 10 s", what)
			}
		}
		next("connected", 0, 0)
		r.enqueue(t, "a", queue.In(time.Hour))
		next("delayed", time.Hour, time.Hour)
		r.enqueue(t, "b", queue.At(r.now(t).Add(time.Minute)))
		next("at a time", 50*time.Second, time.Minute)
		_, err := r.q.Reschedule(t.Context(), "a", queue.In(time.Second))
		must(t, err)
		next("rescheduled", time.Second, time.Second)
		r.enqueue(t, "c")
		next("now", 0, 0)
		d := r.popOne(t, "c")
		_, err = r.q.Settle(t.Context(), []duly.Settlement{{Delivery: d, Action: duly.Retried, In: time.Millisecond}})
		must(t, err)
		next("retried", time.Millisecond, time.Millisecond)
		for payload, want := range map[string]time.Duration{
			"": 0, "x": 0, "-1": 0, "1.5": 0, "7": 7 * time.Microsecond,
			"999999999999999": 24 * time.Hour, "99999999999999999999999": 24 * time.Hour,
		} {
			must(t, r.Publish(t.Context(), r.key("wake"), payload).Err())
			next("payload "+payload, want, want)
		}
	})
}

func TestWatchHintsAndListensAgainAfterItsConnectionIsKilled(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	hints, _ := watch(t, r)
	must(t, r.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err())
	awaitHint(t, hints) // the connection broke
	awaitHint(t, hints) // and is there again
	r.enqueue(t, "a")
	awaitHint(t, hints)
}

func TestWatchEndsWithItsContextAlsoWithoutRedis(t *testing.T) {
	t.Parallel()
	r, server := onOwnRedis(t)
	hints, stop := watch(t, r)
	server.Kill()
	t.Cleanup(server.Restart) // for the check of the keys
	awaitHint(t, hints)
	stop()
}

func TestWatchEndsWhenItsClientIsClosed(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		client := r.client(t, new(link))
		q := newQueue(t, client, r.name, queue.Config{})
		connected, done := make(chan time.Duration, 100), make(chan struct{})
		go func() {
			defer close(done)
			q.Watch(t.Context(), func(in time.Duration) { connected <- in }, func(string, uint64) {})
		}()
		<-connected
		must(t, client.Close())
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatal("Watch goes on, 20 s after its client was closed")
		}
	})
}

func TestWatchIsNotCalledForOtherQueues(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		hints, _ := watch(t, r)
		other := newQueue(t, r.client(t, new(link)), r.name+"2", queue.Config{})
		noHint(t, r, hints, func() {
			_, err := other.Enqueue(t.Context(), task("a"))
			must(t, err)
		})
		must(t, r.Del(t.Context(), "duly:{"+r.name+"2}:due", "duly:{"+r.name+"2}:task").Err())
	})
}
