package workertest_test

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker/workertest"
)

// keyFaults are wrong in what a lock key keeps apart.
var keyFaults = []fault{
	{"ignores lock keys", func(_ *faulty, h *workertest.Harness) {
		enqueue := h.Enqueue
		h.Enqueue = func(ctx context.Context, task duly.Task, in time.Duration) error {
			task.LockKey = ""
			return enqueue(ctx, task, in)
		}
	}, []string{
		"tasks of one lock key run one at a time", "a task whose lock key is held is parked",
		"a parked task burns nothing", "parked tasks block no others",
		"settling hands a lock key over at once",
		"a lease that ran out hands its lock key over", "a batch of settlements hands every lock key over",
		"an extended lease keeps its lock key", "a delivery carries its task",
	}},

	{"takes two lock keys for one", func(_ *faulty, h *workertest.Harness) {
		enqueue := h.Enqueue
		h.Enqueue = func(ctx context.Context, task duly.Task, in time.Duration) error {
			if task.LockKey != "" {
				task.LockKey = "key"
			}
			return enqueue(ctx, task, in)
		}
	}, []string{"parked tasks block no others", "a batch of settlements hands every lock key over"}},

	{"shows what is parked as due", func(_ *faulty, h *workertest.Harness) {
		state := h.State
		h.State = func(ctx context.Context, id string) (workertest.State, error) {
			got, err := state(ctx, id)
			if got == workertest.Parked {
				got = workertest.Due
			}
			return got, err
		}
	}, []string{"a task whose lock key is held is parked"}},

	{"shows all behind a lock key as parked", func(f *faulty, h *workertest.Harness) {
		state := h.State
		h.State = func(ctx context.Context, id string) (workertest.State, error) {
			info, err := f.Get(ctx, id)
			if info.State == workertest.Due && info.LockKey != "" {
				return workertest.Parked, err
			}
			return state(ctx, id)
		}
	}, []string{"a task that is not yet due is not parked"}},

	{"counts being parked as an attempt", func(f *faulty, _ *workertest.Harness) {
		f.deliver(func(d *duly.Delivery) {
			if d.LockKey != "" && d.Due.Before(d.Popped) {
				d.Attempt++
			}
		})
	}, []string{"a parked task burns nothing"}},

	{"blocks all behind a parked task", func(f *faulty, _ *workertest.Harness) {
		f.pop = func(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
			due, leased := f.list(workertest.Due), f.list(workertest.Leased)
			if len(due) > 0 && len(leased) > 0 && due[0].LockKey == leased[0].LockKey {
				return nil, time.Second, nil
			}
			return f.Source.Pop(ctx, n, lease)
		}
	}, []string{"parked tasks block no others"}},

	{"frees a lock key when it is popped", func(f *faulty, _ *workertest.Harness) {
		f.pop = func(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
			ds, wait, err := f.Source.Pop(ctx, n, lease)
			for _, d := range ds {
				f.FreeKey(d.LockKey)
			}
			return ds, wait, err
		}
	}, []string{
		"tasks of one lock key run one at a time", "two poppers never hold one lock key",
		"parked tasks are waited for, not polled",
	}},

	{"takes a parked task twice", func(_ *faulty, h *workertest.Harness) {
		enqueue, state := h.Enqueue, h.State
		h.Enqueue = func(ctx context.Context, task duly.Task, in time.Duration) error {
			if there, _ := state(ctx, task.ID); there == workertest.Parked {
				task.ID += " again"
			}
			return enqueue(ctx, task, in)
		}
	}, []string{"a parked task that is enqueued again is kept once"}},

	{"frees a lock key when it is extended", func(f *faulty, _ *workertest.Harness) {
		f.extend = func(ctx context.Context, ds []*duly.Delivery, lease time.Duration) (lost, cancelled []*duly.Delivery, err error) {
			defer f.FreeKey(ds[0].LockKey)
			return f.Source.Extend(ctx, ds, lease)
		}
	}, []string{"an extended lease keeps its lock key", "who has lost a lease does not free its lock key"}},

	{"frees a lock key whoever settles", func(f *faulty, _ *workertest.Harness) {
		f.settle = func(ctx context.Context, ss []duly.Settlement) ([]*duly.Delivery, error) {
			lost, err := f.Source.Settle(ctx, ss)
			for _, how := range ss {
				f.FreeKey(how.Delivery.LockKey)
			}
			return lost, err
		}
	}, []string{"who has lost a lease does not free its lock key"}},
}

// handOverFaults are wrong in who comes next.
var handOverFaults = []fault{
	{"never hands a lock key over", keeps(func(duly.Settlement) bool { return true }), []string{
		"settling hands a lock key over at once", "a lock key is handed over in due order",
		"a retried holder lets the next one go first", "two poppers never hold one lock key",
	}},

	{"keeps the lock key of what is retried or released", keeps(func(how duly.Settlement) bool {
		return how.Action == duly.Retried || how.Action == duly.Released
	}), []string{
		"settling hands a lock key over at once", "a retried holder lets the next one go first",
		"a snoozed holder lets the next one go first", "a released holder goes first again",
	}},

	{"keeps the lock keys of a batch but one", func(f *faulty, _ *workertest.Harness) {
		f.settle = func(ctx context.Context, ss []duly.Settlement) ([]*duly.Delivery, error) {
			lost, err := f.Source.Settle(ctx, ss)
			for _, how := range ss[1:] {
				f.HoldKey(how.Delivery.LockKey)
			}
			return lost, err
		}
	}, []string{"a batch of settlements hands every lock key over"}},

	{"keeps the lock key of what crashed", func(f *faulty, _ *workertest.Harness) {
		f.pop = func(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
			for _, info := range f.list(workertest.Leased) {
				if !info.At.After(f.Now()) {
					f.HoldKey(info.LockKey)
				}
			}
			return f.Source.Pop(ctx, n, lease)
		}
	}, []string{"a lease that ran out hands its lock key over", "a task that crashes bury hands its lock key over"}},

	{"hands a lock key to the last in line", reorders(func(waiting []workertest.Info) string {
		return waiting[len(waiting)-1].ID
	}), []string{"a lock key is handed over in due order"}},

	{"hands a lock key to the lowest ID", reorders(func(waiting []workertest.Info) string {
		return slices.MinFunc(waiting, func(a, b workertest.Info) int { return strings.Compare(a.ID, b.ID) }).ID
	}), []string{
		"a lock key is handed over in due order", "a retried holder lets the next one go first",
	}},

	{"hands a lock key to the highest ID", reorders(func(waiting []workertest.Info) string {
		return slices.MaxFunc(waiting, func(a, b workertest.Info) int { return strings.Compare(a.ID, b.ID) }).ID
	}), []string{"a released holder goes first again"}},

	{"hands a lock key over with the crashes of its last holder", func(f *faulty, _ *workertest.Harness) {
		crashes := make(map[string]int)
		f.deliver(func(d *duly.Delivery) {
			crashes[d.LockKey] = max(crashes[d.LockKey], d.Crashes)
			d.Crashes = crashes[d.LockKey]
		})
	}, []string{"a task that crashes bury hands its lock key over"}},
}

// keeps makes a settlement keep the lock key that it should hand over.
func keeps(key func(how duly.Settlement) bool) func(*faulty, *workertest.Harness) {
	return func(f *faulty, _ *workertest.Harness) {
		f.settle = func(ctx context.Context, ss []duly.Settlement) ([]*duly.Delivery, error) {
			lost, err := f.Source.Settle(ctx, ss)
			for _, how := range ss {
				if key(how) {
					f.HoldKey(how.Delivery.LockKey)
				}
			}
			return lost, err
		}
	}
}

// reorders puts all of those that wait behind one of them whenever one is settled.
func reorders(first func(waiting []workertest.Info) string) func(*faulty, *workertest.Harness) {
	return func(f *faulty, _ *workertest.Harness) {
		f.settle = func(ctx context.Context, ss []duly.Settlement) ([]*duly.Delivery, error) {
			lost, err := f.Source.Settle(ctx, ss)
			waiting := append(f.list(workertest.Due), f.list(workertest.Parked)...)
			for _, info := range waiting {
				if info.ID != first(waiting) {
					_, _ = f.Reschedule(ctx, info.ID, workertest.In(0))
				}
			}
			return lost, err
		}
	}
}
