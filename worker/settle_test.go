package worker_test

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// Alone, a settlement leaves at once; what comes while it is on its way goes
// together with the next.
func TestSettlementsFormBatchesUnderLoad(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.before = on("settle", func(context.Context) error {
			time.Sleep(10 * time.Millisecond)
			return nil
		})
		began := time.Now()
		for i := range 101 { // one, and then one a ms
			f.add(fmt.Sprint(i), time.Duration(i)*time.Millisecond)
		}
		launch(t, done, worker.Config{Concurrency: 50}, f)
		pass(time.Second)
		calls := f.told("settle")
		if first := calls[0]; first.n != 1 || first.at.Sub(began) != 10*time.Millisecond {
			t.Errorf("the first settlement left with %d, and was there after %v", first.n, first.at.Sub(began))
		}
		total := 0
		for _, c := range calls {
			total += c.n
		}
		if len(calls) > 13 || total != 101 {
			t.Errorf("%d calls for %d settlements, want 101 in about 12", len(calls), total)
		}
	})
}

func TestSettlementIsTriedAgain(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.add("a", 0)
		began, tries := time.Now(), 0
		f.before = on("settle", func(context.Context) error {
			if tries++; tries <= 5 {
				return errAway
			}
			return nil
		})
		w := launch(t, done, worker.Config{}, f)
		pass(10 * time.Second)
		if ends := f.ends(); len(ends) != 1 || ends[0].Action != duly.Acked || tries != 6 {
			t.Errorf("settled %+v in %d tries, want one ack in 6", ends, tries)
		}
		if s := w.Stats(); s.Acked != 1 || s.Lost != 0 {
			t.Errorf("counted %+v", s)
		}
		within(t, "the settlement took", f.told("settle")[0].at.Sub(began), 500*time.Millisecond, 3500*time.Millisecond)
	})
}

// A lost reply makes the settlement go twice, and the second is told lost: the
// task is done all the same, and done once.
func TestSettlementWithoutReplyActsOnce(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, j := newFake("q"), new(journal)
		f.add("a", 0)
		first := true
		f.after = on("settle", func(context.Context) error {
			if first {
				first = false
				return errAway
			}
			return nil
		})
		w := launch(t, handler(j.note), worker.Config{}, f)
		pass(time.Minute)
		if len(j.all()) != 1 || len(f.ends()) != 1 || f.left() != 0 || len(f.told("settle")) != 2 {
			t.Errorf("%d runs, settled %+v", len(j.all()), f.ends())
		}
		if s := w.Stats(); s.Acked+s.Lost != 1 {
			t.Errorf("counted %+v", s)
		}
	})
}

// A settlement is kept, and its lease with it, for as long as the source cannot
// be told, though not longer than the lease.
func TestSettlementIsKeptForAsLongAsItsLease(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.add("a", 0)
		began := time.Now()
		f.before = func(_ context.Context, verb string) error {
			if verb == "extend" && time.Since(began) > time.Minute || verb == "settle" {
				return errAway
			}
			return nil
		}
		w := launch(t, done, worker.Config{Concurrency: 1}, f)
		pass(70 * time.Second)
		if s := w.Stats(); s.Lost != 0 || f.leased() != 1 {
			t.Errorf("counted %+v, %d leased; want it kept for as long as it is extended", s, f.leased())
		}
		pass(8 * time.Second) // the last extension was at 60 s
		if s := w.Stats(); s.Lost != 1 || s.Acked != 0 {
			t.Errorf("counted %+v, want it lost when its lease has ended", s)
		}
		f.mu.Lock()
		delete(f.tasks, "a")
		f.mu.Unlock()
		f.meddle(nil)
		f.add("b", 0)
		pass(5 * time.Second)
		if ends := f.ends(); len(ends) != 1 || ends[0].Delivery.ID != "b" {
			t.Errorf("settled %+v, want b alone, in the slot of a", ends)
		}
	})
}

// After an outage full batches of settlements may have lost their leases. What
// waits behind them has not.
func TestSettlementsBehindLostOnesAreSent(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		began := time.Now()
		f.before = func(_ context.Context, verb string) error {
			if verb == "extend" || verb == "settle" && time.Since(began) < 18*time.Second {
				return errAway
			}
			return nil
		}
		for i := range 2000 {
			f.add(fmt.Sprintf("early-%d", i), 0)
		}
		for i := range 1000 {
			f.add(fmt.Sprintf("late-%d", i), 8*time.Second)
		}
		w := launch(t, work(4*time.Second), worker.Config{Concurrency: 3000}, f)
		pass(10 * time.Second)
		f.mu.Lock()
		for i := range 2000 { // so that they do not run again and wake the settler
			delete(f.tasks, fmt.Sprintf("early-%d", i))
		}
		f.mu.Unlock()
		pass(10 * time.Second)
		if s := w.Stats(); s.Lost != 2000 || s.Acked != 1000 {
			t.Errorf("counted %+v, want 2,000 lost and 1,000 acked", s)
		}
	})
}

// An answer out of all bounds must not keep others from being settled.
func TestAbsurdDelayDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer handler
		cfg    worker.Config
	}{
		"Snooze":       {answer(duly.Snooze(math.MaxInt64)), worker.Config{}},
		"RetryIn":      {answer(duly.RetryIn(math.MaxInt64, errBoom)), worker.Config{}},
		"UnknownDelay": {answer(duly.ErrNoHandler), worker.Config{UnknownDelay: math.MaxInt64}},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				q := openQueue(t, "orders")
				for _, id := range []string{"absurd", "b", "c"} {
					_, err := q.Enqueue(t.Context(), duly.Task{ID: id, Kind: "k"})
					must(t, err)
				}
				launch(t, handler(func(ctx context.Context, d *duly.Delivery) error {
					if d.ID == "absurd" {
						return c.answer(ctx, d)
					}
					return nil
				}), c.cfg, q)
				pass(time.Minute)
				stats, err := q.Stats(t.Context())
				must(t, err)
				if stats.Due != 1 || stats.Leased != 0 || stats.Counters["ack"] != 2 {
					t.Errorf("queue %+v, want 2 acked and 1 due in ages", stats)
				}
				info, err := q.Get(t.Context(), "absurd")
				must(t, err)
				if info.State != queue.Due || time.Until(info.At) < 50*365*24*time.Hour {
					t.Errorf("%s at %v", info.State, info.At)
				}
			})
		})
	}
}

// A source that is away is called now and then, not without a pause, and taken
// up again within 2 s of its return. All this is said in two lines.
func TestNoHotLoopWhileTheSourceIsAway(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		logger, logs := observe()
		f.addMany(20)
		w := launch(t, handler(func(ctx context.Context, _ *duly.Delivery) error {
			select {
			case <-time.After(3 * time.Second):
			case <-ctx.Done():
			}
			return nil
		}), worker.Config{Concurrency: 10, Logger: logger}, f)
		pass(time.Second)
		for range 5 {
			var pops, others atomic.Int64
			f.meddle(func(_ context.Context, verb string) error {
				if verb == "pop" {
					pops.Add(1)
				} else {
					others.Add(1)
				}
				return errAway
			})
			pass(time.Minute)
			if pops.Load() > 60 || others.Load() > 60 {
				t.Errorf("%d pops and %d other calls in a minute", pops.Load(), others.Load())
			}
			before := len(f.told("pop"))
			f.meddle(nil)
			pass(2 * time.Second)
			if len(f.told("pop")) == before {
				t.Error("no pop within 2 s of the source's return")
			}
		}
		pass(time.Minute)
		if w.Stats().Acked != 20 {
			t.Errorf("counted %+v, want 20 acked", w.Stats())
		}
		if down, up := said(logs); down != 5 || up != 5 {
			t.Errorf("%d lines down and %d up for 5 outages: %v", down, up, logs.All())
		}
	})
}
