package workertest_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker/workertest"
)

var cancelFaults = []fault{
	{"cancels nothing", func(_ *faulty, h *workertest.Harness) {
		h.CancelRunning = func(context.Context, string) error { return nil }
	}, []string{
		"a cancelled run ends its task however it is settled", "extending tells which are cancelled and keeps their leases",
		"a cancelled run whose lease ran out is gone", "a cancelled run is told",
	}},

	{"cancels what is settled alone", func(f *faulty, h *workertest.Harness) {
		h.CancelRunning = func(context.Context, string) error { return nil }
		cancelled := remember(h)
		f.rewrite(func(how *duly.Settlement) {
			if cancelled(how.Delivery.ID) {
				how.Action = duly.Dropped
			}
		})
	}, []string{"a cancelled run whose lease ran out is gone"}},

	{"loses what is cancelled", func(f *faulty, _ *workertest.Harness) {
		extend := f.extend
		f.extend = func(ctx context.Context, ds []*duly.Delivery, lease time.Duration) ([]*duly.Delivery, []*duly.Delivery, error) {
			lost, cancelled, err := extend(ctx, ds, lease)
			return append(lost, cancelled...), nil, err
		}
	}, []string{"extending tells which are cancelled and keeps their leases"}},

	{"extends no lease of what is cancelled", func(f *faulty, _ *workertest.Harness) {
		extend := f.extend
		f.extend = func(ctx context.Context, ds []*duly.Delivery, lease time.Duration) ([]*duly.Delivery, []*duly.Delivery, error) {
			lost, cancelled, err := extend(ctx, ds, lease)
			_, _, _ = extend(ctx, cancelled, 20*time.Millisecond)
			return lost, cancelled, err
		}
	}, []string{"extending tells which are cancelled and keeps their leases"}},

	{"loses the ack of what is cancelled", func(f *faulty, h *workertest.Harness) {
		cancelled := remember(h)
		f.settle = func(ctx context.Context, ss []duly.Settlement) ([]*duly.Delivery, error) {
			lost, err := f.Source.Settle(ctx, ss)
			for i := range ss {
				if ss[i].Action == duly.Acked && cancelled(ss[i].Delivery.ID) {
					lost = append(lost, ss[i].Delivery)
				}
			}
			return lost, err
		}
	}, []string{"an ack of a cancelled run stands"}},

	{"repeats what is cancelled", func(f *faulty, h *workertest.Harness) {
		cancelled := remember(h)
		f.settle = func(ctx context.Context, ss []duly.Settlement) ([]*duly.Delivery, error) {
			lost, err := f.Source.Settle(ctx, ss)
			for i := range ss {
				if d := ss[i].Delivery; ss[i].Action == duly.Repeated && cancelled(d.ID) {
					_, _ = f.Enqueue(ctx, d.Task, workertest.At(ss[i].At))
				}
			}
			return lost, err
		}
	}, []string{"a cancelled run ends its task however it is settled", "an ack of a cancelled run stands"}},

	{"cancels an ID for ever", func(f *faulty, h *workertest.Harness) {
		cancelled := remember(h)
		cancel := h.CancelRunning
		f.pop = func(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
			ds, wait, err := f.Source.Pop(ctx, n, lease)
			for _, d := range ds {
				if cancelled(d.ID) {
					_ = cancel(ctx, d.ID)
				}
			}
			return ds, wait, err
		}
	}, []string{"a cancellation hits no later run"}},

	{"tells no watcher of what is cancelled", func(f *faulty, _ *workertest.Harness) {
		f.tells(func(func(string, uint64), string, uint64) {})
	}, []string{"a cancelled run is told"}},

	{"tells of another ID", func(f *faulty, _ *workertest.Harness) {
		f.tells(func(cancel func(string, uint64), _ string, fence uint64) { cancel("other", fence) })
	}, []string{"a cancelled run is told"}},

	{"tells of a fence that was never given", func(f *faulty, _ *workertest.Harness) {
		f.tells(func(cancel func(string, uint64), id string, fence uint64) { cancel(id, fence+1<<50) })
	}, []string{"a watcher is told by fence which run is cancelled"}},
}

// remember notes which IDs are cancelled.
func remember(h *workertest.Harness) (cancelled func(id string) bool) {
	var mu sync.Mutex
	var ids []string
	cancel := h.CancelRunning
	h.CancelRunning = func(ctx context.Context, id string) error {
		mu.Lock()
		ids = append(ids, id)
		mu.Unlock()
		return cancel(ctx, id)
	}
	return func(id string) bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Contains(ids, id)
	}
}

// tells changes what watchers are told of cancelled runs.
func (f *faulty) tells(change func(cancel func(id string, fence uint64), id string, fence uint64)) {
	f.watch = func(ctx context.Context, hint func(in time.Duration), cancel func(id string, fence uint64)) {
		f.Source.Watch(ctx, hint, func(id string, fence uint64) { change(cancel, id, fence) })
	}
}
