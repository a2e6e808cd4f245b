package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/queue"
)

// chaos: whatever happens, once all holders are gone every task runs.
func TestNothingIsForgotten(t *testing.T) {
	t.Parallel()
	for seed := range 6 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := newClock(t)
			chaos(t, c, uint64(seed))
		})
	}
}

func chaos(t *testing.T, c *clock, seed uint64) {
	rnd := newRand(seed)
	keys := []string{"", "k", "k:2", "k@3", "k#/4", "k\u00e9"}
	held := map[string]*duly.Delivery{}
	app := map[string]*lock.Lease{}
	ctx := t.Context()
	running := map[string]string{}
	for step := range 1500 {
		id := fmt.Sprint("id", rnd.IntN(40))
		key := keys[rnd.IntN(len(keys))]
		switch rnd.IntN(12) {
		case 0, 1, 2:
			x := task(id)
			x.LockKey = key
			conflict := []queue.Conflict{queue.Keep, queue.Replace, queue.Earliest}[rnd.IntN(3)]
			_, err := c.q.Enqueue(ctx, x, queue.OnConflict(conflict), queue.In(time.Duration(rnd.IntN(3))*time.Minute))
			must(t, err)
		case 3, 4:
			if rnd.IntN(5) == 0 {
				c.link.lose()
			}
			ds, _, err := c.q.Pop(ctx, 1+rnd.IntN(6), 10*time.Minute)
			if err != nil {
				wants(t, err, queue.ErrUnknownOutcome)
				break
			}
			for _, d := range ds {
				if d.LockKey != "" {
					if other := running[d.LockKey]; other != "" && other != d.ID {
						t.Fatalf("step %d: %s runs beside %s", step, d.ID, other)
					}
					if app[d.LockKey] != nil {
						t.Fatalf("step %d: %s runs beside the application", step, d.ID)
					}
					running[d.LockKey] = d.ID
				}
				held[d.ID] = d
			}
		case 5, 6:
			for id, d := range held {
				action := []duly.Action{duly.Acked, duly.Dropped, duly.Retried, duly.Released, duly.Buried}[rnd.IntN(5)]
				_, err := c.q.Settle(ctx, []duly.Settlement{{Delivery: d, Action: action, Err: errors.New("x")}})
				must(t, err)
				delete(held, id)
				delete(running, d.LockKey)
				break
			}
		case 7:
			_, err := c.q.Cancel(ctx, id)
			must(t, err)
		case 8:
			_, err := c.q.Reschedule(ctx, id, queue.In(time.Duration(rnd.IntN(3))*time.Minute))
			must(t, err)
		case 9:
			if key == "" {
				break
			}
			if l := app[key]; l != nil {
				_ = l.Release(ctx)
				delete(app, key)
			} else if l, err := c.q.Locker().TryAcquire(ctx, key, 8*time.Minute); err == nil {
				if running[key] != "" {
					t.Fatalf("step %d: the application runs beside %s", step, running[key])
				}
				app[key] = l
			}
		case 10:
			if rnd.IntN(4) == 0 { // everything that is held ends
				c.step(11 * time.Minute)
				clear(held)
				clear(running)
				clear(app)
			} else {
				c.step(time.Duration(rnd.IntN(20)) * time.Second)
				clear(app) // may have ended
				clear(running)
				for id := range held {
					delete(held, id)
				}
				c.step(11 * time.Minute)
			}
		case 11:
			_, err := c.q.Revive(ctx, id)
			must(t, err)
		}
	}
	c.step(24 * time.Hour)
	for range 2000 {
		ds, wait, err := c.q.Pop(ctx, 7, 10*time.Minute)
		must(t, err)
		if len(ds) > 0 {
			c.settle(t, duly.Acked, ds...)
			continue
		}
		if wait >= 24*time.Hour {
			break
		}
		c.step(max(wait, time.Microsecond))
	}
	s := c.stats(t)
	equal(t, "due, parked, leased", []int{s.Due, s.Parked, s.Leased}, []int{0, 0, 0})
	for _, set := range []string{"turns", "blocked", "parked"} {
		equal(t, set, c.Exists(ctx, c.key(set)).Val(), 0)
	}
	_ = slices.Sorted[string]
}

// Held (or not): several workers, two applications, lost replies, crashes; who runs is
// known by what the server says of the leases. Fences of a key rise.
func TestRunsOfAKeyDoNotOverlapAndFencesRise(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
	defer cancel()
	keys := []string{"k1", "k2", "k3"}
	var mu sync.Mutex
	running := map[string]string{}
	until := map[string]time.Time{}
	highest := map[string]uint64{}
	begin := func(key, who string, fence uint64, end time.Time) {
		mu.Lock()
		defer mu.Unlock()
		if other := running[key]; other != "" && time.Now().Before(until[key]) {
			t.Errorf("%s: %s runs beside %s", key, who, other)
		}
		if fence <= highest[key] {
			t.Errorf("%s: fence %d of %s after %d", key, fence, who, highest[key])
		}
		running[key], until[key], highest[key] = who, end, fence
	}
	end := func(key, who string) {
		mu.Lock()
		defer mu.Unlock()
		if running[key] == who {
			running[key] = ""
		}
	}
	const n = 400
	tasks := many(n)
	for i := range tasks {
		tasks[i].LockKey = keys[i%3]
	}
	_, err := r.q.EnqueueMany(ctx, tasks)
	must(t, err)
	var done atomic.Int64
	var wg sync.WaitGroup
	for w := range 3 {
		q, l := r.queue(t, queue.Config{MaxCrashes: 1000})
		wg.Go(func() {
			rnd := newRand(uint64(w))
			for done.Load() < n && ctx.Err() == nil {
				if rnd.IntN(10) == 0 {
					l.lose()
				}
				sent := time.Now()
				const lease = 300 * time.Millisecond
				ds, _, err := q.Pop(ctx, 1+rnd.IntN(5), lease)
				if err != nil {
					continue
				}
				for _, d := range ds {
					who := fmt.Sprint("task ", d.ID, " ", d.Fence)
					if time.Since(sent) > lease/2 {
						continue
					}
					begin(d.LockKey, who, d.Fence, sent.Add(lease))
					action := []duly.Action{duly.Acked, duly.Acked, duly.Retried, duly.Released}[rnd.IntN(4)]
					if rnd.IntN(20) == 0 {
						continue // a crash
					}
					end(d.LockKey, who)
					lost, err := q.Settle(ctx, []duly.Settlement{{Delivery: d, Action: action, Err: errors.New("x")}})
					if err == nil && len(lost) == 0 && action == duly.Acked {
						done.Add(1)
					}
				}
			}
		})
	}
	for a := range 2 {
		q, _ := r.queue(t, queue.Config{})
		wg.Go(func() {
			rnd := newRand(uint64(100 + a))
			for done.Load() < n && ctx.Err() == nil {
				key := keys[rnd.IntN(3)]
				wait, stop := context.WithTimeout(ctx, time.Duration(1+rnd.IntN(40))*time.Millisecond)
				lease, err := q.Locker().Acquire(wait, key, 200*time.Millisecond)
				stop()
				if err != nil {
					continue
				}
				who := fmt.Sprint("app ", a, " ", lease.Fence())
				begin(key, who, lease.Fence(), lease.Until())
				if rnd.IntN(10) == 0 {
					if token, err := lease.HandOver(); err == nil {
						if again, err := q.Locker().Resume(ctx, key, token, 200*time.Millisecond); err == nil {
							lease = again
						}
					}
				}
				if rnd.IntN(15) == 0 {
					continue // dies
				}
				end(key, who)
				_ = lease.Release(ctx)
				var none *lock.HeldError
				_ = errors.As(err, &none)
				time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
			}
		})
	}
	wg.Wait()
	t.Logf("%d done, %+v", done.Load(), r.stats(t))
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }
