package workertest_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker/workertest"
)

// A fault is a way to be wrong, and the tests of the kit that find it.
type fault struct {
	name string
	make func(f *faulty, h *workertest.Harness)
	by   []string
}

var faults = slices.Concat(
	popFaults, leaseFaults, settleFaults, cancelFaults, resultFaults, recurFaults, watchFaults, keyFaults, handOverFaults,
)

// TestKitFindsFaults: each test of the kit fails for a source that is wrong in
// what the test is about, and passes for the same source without the fault.
func TestKitFindsFaults(t *testing.T) {
	t.Parallel()
	cases := make(map[string]workertest.Case)
	for _, c := range workertest.Cases() {
		cases[c.Name] = c
	}
	untested := maps.Clone(cases)
	for _, fault := range append(faults, fault{"without a fault", nil, slices.Collect(maps.Keys(cases))}) {
		for _, name := range fault.by {
			if fault.make != nil {
				delete(untested, name)
			}
			t.Run(fault.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := newFaulty()
					h := bubbled(f.Source)
					h.Source = f
					if fault.make != nil {
						fault.make(f, &h)
					}
					r := recordCase(t, cases[name], h)
					if r.failed != (fault.make != nil) || r.skipped {
						t.Errorf("failed %v, skipped %v:\n%s", r.failed, r.skipped, r.log)
					}
					time.Sleep(2 * time.Hour) // some faults watch for an hour longer than they should
				})
			})
		}
	}
	for name := range untested {
		t.Errorf("no fault shows that the test %q can fail", name)
	}
}

var popFaults = []fault{
	{"brings nothing", func(f *faulty, _ *workertest.Harness) {
		f.pop = func(context.Context, int, time.Duration) ([]*duly.Delivery, time.Duration, error) {
			return nil, time.Second, nil
		}
	}, []string{"a task due at once is popped at once", "a task is never early", "waiting as told leads to the task"}},

	{"brings the head early", func(f *faulty, _ *workertest.Harness) {
		f.pop = func(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
			if due := f.list(workertest.Due); len(due) > 0 {
				_, _ = f.Reschedule(ctx, due[0].ID, workertest.In(0))
			}
			return f.Source.Pop(ctx, n, lease)
		}
	}, []string{
		"a task is never early", "settling twice is lost and harmless", "a retried task is due after its delay",
		"a released task is due after its delay",
	}},

	{"brings the latest of a batch first", func(f *faulty, _ *workertest.Harness) {
		f.pop = func(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
			ds, wait, err := f.Source.Pop(ctx, n, lease)
			slices.Reverse(ds)
			return ds, wait, err
		}
	}, []string{"one pop brings the earliest first"}},

	{"takes the latest first", func(f *faulty, _ *workertest.Harness) {
		f.pop = func(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
			ds, wait, err := f.Source.Pop(ctx, 500, lease)
			spare := max(len(ds)-n, 0)
			_, _ = f.Source.Settle(ctx, settlements(ds[:spare], duly.Released))
			return ds[spare:], wait, err
		}
	}, []string{"one pop after another brings the earliest first", "a task whose lease ran out keeps its place"}},

	{"brings one too many", func(f *faulty, _ *workertest.Harness) {
		f.pop = func(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
			return f.Source.Pop(ctx, n+1, lease)
		}
	}, []string{"a pop brings no more than n"}},

	{"reports no wait", func(f *faulty, _ *workertest.Harness) {
		f.waits(func(time.Duration) time.Duration { return 0 })
	}, []string{
		"an empty source brings nothing and a wait", "the wait ends with the next due time",
		"the wait ends with the next lease", "waiting as told leads to the task",
		"parked tasks are waited for, not polled",
	}},

	{"reports a wait of a day", func(f *faulty, _ *workertest.Harness) {
		f.waits(func(time.Duration) time.Duration { return 24 * time.Hour })
	}, []string{
		"the wait is zero if more is due", "the wait ends with the next due time",
		"the wait ends with the next lease", "waiting as told leads to the task",
	}},

	{"forgets the leases that it gives when it reports a wait", func(f *faulty, _ *workertest.Harness) {
		f.pop = func(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
			ds, wait, err := f.Source.Pop(ctx, n, lease)
			if due := f.list(workertest.Due); len(ds) > 0 && len(due) > 0 {
				wait = due[0].At.Sub(f.Now())
			}
			return ds, wait, err
		}
	}, []string{"the wait ends with the next lease"}},

	{"forgets headers", func(f *faulty, _ *workertest.Harness) {
		f.deliver(func(d *duly.Delivery) { d.Headers = nil })
	}, []string{"a delivery carries its task"}},

	{"reports the moment of the pop as the due time", func(f *faulty, _ *workertest.Harness) {
		f.deliver(func(d *duly.Delivery) { d.Due = d.Popped })
	}, []string{"a delivery tells when its task was due", "a lease that ran out makes its task due again"}},

	{"leases though the context has ended", func(f *faulty, _ *workertest.Harness) {
		f.pop = func(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
			ds, wait, _ := f.Source.Pop(context.WithoutCancel(ctx), n, lease)
			if ctx.Err() != nil {
				return nil, 0, ctx.Err()
			}
			return ds, wait, nil
		}
	}, []string{"a pop whose context has ended loses nothing"}},

	{"forgets what it leased when it was interrupted", func(f *faulty, _ *workertest.Harness) {
		var calls int
		f.pop = func(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
			ds, wait, err := f.Source.Pop(ctx, n, lease)
			if _, bounded := ctx.Deadline(); bounded {
				if calls++; calls%3 == 0 {
					return nil, 0, context.DeadlineExceeded
				}
			}
			return ds, wait, err
		}
	}, []string{"pops that are interrupted lose nothing", "pops that are interrupted keep lock keys apart"}},

	{"forgets that a task is leased", func(f *faulty, _ *workertest.Harness) {
		f.pop = func(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
			ds, wait, err := f.Source.Pop(ctx, n, lease)
			if len(ds) == 0 {
				for _, leased := range f.list(workertest.Leased) {
					f.mu.Lock()
					ds = append(ds, f.newest[leased.ID])
					f.mu.Unlock()
				}
			}
			return ds, wait, err
		}
	}, []string{
		"a lease excludes other deliveries", "two poppers never hold one task", "extending makes a lease last longer",
	}},
}

func settlements(ds []*duly.Delivery, action duly.Action) []duly.Settlement {
	ss := make([]duly.Settlement, len(ds))
	for i, d := range ds {
		ss[i] = duly.Settlement{Delivery: d, Action: action}
	}
	return ss
}

var watchFaults = []fault{
	{"never hints", func(f *faulty, _ *workertest.Harness) {
		f.watch = func(ctx context.Context, _ func(time.Duration), _ func(string, uint64)) { <-ctx.Done() }
	}, []string{
		"an earlier task is hinted", "a task that is settled to be due earlier is hinted",
		"a lock key that is handed over is hinted as now",
	}},

	{"hints enqueueing alone", func(f *faulty, h *workertest.Harness) {
		hintEnqueued(f, h, func() bool { return true })
	}, []string{"a task that is settled to be due earlier is hinted", "a lock key that is handed over is hinted as now"}},

	{"hints an hour late", func(f *faulty, _ *workertest.Harness) {
		f.watch = func(ctx context.Context, hint func(in time.Duration), cancel func(string, uint64)) {
			f.Source.Watch(ctx, func(time.Duration) { hint(time.Hour) }, cancel)
		}
	}, []string{"a lock key that is handed over is hinted as now"}},

	{"takes a parked task for the head", func(f *faulty, h *workertest.Harness) {
		head := func() string {
			if waiting := append(f.list(workertest.Parked), f.list(workertest.Due)...); len(waiting) > 0 {
				return waiting[0].ID
			}
			return ""
		}
		last := ""
		hintEnqueued(f, h, func() bool {
			before := last
			last = head()
			return last != before
		})
	}, []string{"an earlier task is hinted past parked ones"}},

	{"hints one watcher", func(f *faulty, _ *workertest.Harness) {
		first := make(chan struct{}, 1)
		first <- struct{}{}
		f.watch = func(ctx context.Context, hint func(in time.Duration), cancel func(id string, fence uint64)) {
			select {
			case <-first:
				f.Source.Watch(ctx, hint, cancel)
			default:
				<-ctx.Done()
			}
		}
	}, []string{"each watcher is hinted"}},

	{"watches on", func(f *faulty, _ *workertest.Harness) {
		f.watch = func(ctx context.Context, hint func(in time.Duration), cancel func(id string, fence uint64)) {
			ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Hour)
			defer stop()
			f.Source.Watch(ctx, hint, cancel)
		}
	}, []string{"watching ends with its context"}},

	{"hints after the end", func(f *faulty, _ *workertest.Harness) {
		f.watch = func(ctx context.Context, hint func(in time.Duration), cancel func(id string, fence uint64)) {
			after, stop := context.WithCancel(context.WithoutCancel(ctx))
			time.AfterFunc(time.Hour, stop)
			go f.Source.Watch(after, hint, cancel)
			<-ctx.Done()
		}
	}, []string{"watching ends with its context"}},
}

// hintEnqueued makes a source hint nothing but enqueueing, if it is worth it.
func hintEnqueued(f *faulty, h *workertest.Harness, worth func() bool) {
	var mu sync.Mutex
	var hints []func(in time.Duration)
	f.watch = func(ctx context.Context, hint func(in time.Duration), _ func(string, uint64)) {
		mu.Lock()
		hints = append(hints, hint)
		mu.Unlock()
		<-ctx.Done()
	}
	enqueue := h.Enqueue
	h.Enqueue = func(ctx context.Context, task duly.Task, in time.Duration) error {
		err := enqueue(ctx, task, in)
		mu.Lock()
		defer mu.Unlock()
		if worth() {
			for _, hint := range hints {
				hint(0)
			}
		}
		return err
	}
}
