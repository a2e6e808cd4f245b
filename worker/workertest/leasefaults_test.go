package workertest_test

import (
	"context"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker/workertest"
)

var leaseFaults = []fault{
	{"leases for half the time", func(f *faulty, _ *workertest.Harness) {
		f.leases(func(lease time.Duration) time.Duration { return lease / 2 })
	}, []string{"a lease lasts as long as was asked for"}},

	{"leases for a day", func(f *faulty, _ *workertest.Harness) {
		f.leases(func(time.Duration) time.Duration { return 24 * time.Hour })
	}, []string{
		"a lease that ran out makes its task due again", "too many crashes bury", "the wait ends with the next lease",
		"a lease that ran out hands its lock key over", "a task that crashes bury hands its lock key over",
	}},

	{"releases what ran out", func(f *faulty, _ *workertest.Harness) {
		f.pop = func(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
			for _, info := range f.list(workertest.Leased) {
				if !info.At.After(f.Now()) {
					again := duly.Settlement{Delivery: f.newest[info.ID], Action: duly.Released, In: time.Microsecond}
					_, _ = f.Source.Settle(ctx, []duly.Settlement{again})
				}
			}
			time.Sleep(time.Microsecond)
			return f.Source.Pop(ctx, n, lease)
		}
	}, []string{
		"a lease that ran out makes its task due again", "a task whose lease ran out keeps its place",
		"crashes add up until the task settles", "too many crashes bury",
	}},

	{"counts crashes for ever", func(f *faulty, _ *workertest.Harness) {
		total := 0
		f.deliver(func(d *duly.Delivery) {
			total = max(total, d.Crashes)
			d.Crashes = total
		})
	}, []string{"crashes add up until the task settles"}},

	{"buries too early", func(_ *faulty, h *workertest.Harness) {
		h.MaxCrashes = 4
	}, []string{"too many crashes bury"}},

	{"buries too late", func(_ *faulty, h *workertest.Harness) {
		h.MaxCrashes = 2
	}, []string{"too many crashes bury"}},

	{"gives every delivery one fence", func(f *faulty, _ *workertest.Harness) {
		f.deliver(func(d *duly.Delivery) { d.Fence = 1 })
	}, []string{
		"fences rise along a lock key", "fences rise with every delivery of a task",
		"a lease that ran out makes its task due again",
	}},

	{"extends nothing", func(f *faulty, _ *workertest.Harness) {
		f.extend = func(context.Context, []*duly.Delivery, time.Duration) (_, _ []*duly.Delivery, _ error) {
			return nil, nil, nil
		}
	}, []string{
		"extending makes a lease last longer", "extending counts from now", "extending what ran out is lost and harmless",
		"extending what has settled is lost and harmless", "extending tells which are lost",
		"an extended lease keeps its lock key",
	}},

	{"extends from the lease's end", func(f *faulty, _ *workertest.Harness) {
		f.extend = func(ctx context.Context, ds []*duly.Delivery, lease time.Duration) ([]*duly.Delivery, []*duly.Delivery, error) {
			for _, info := range f.list(workertest.Leased) {
				lease += info.At.Sub(f.Now())
			}
			return f.Source.Extend(ctx, ds, lease)
		}
	}, []string{"extending counts from now"}},

	{"extends once", func(f *faulty, _ *workertest.Harness) {
		extended := make(map[*duly.Delivery]bool)
		f.extend = func(ctx context.Context, ds []*duly.Delivery, lease time.Duration) ([]*duly.Delivery, []*duly.Delivery, error) {
			if extended[ds[0]] {
				return ds, nil, nil
			}
			extended[ds[0]] = true
			return f.Source.Extend(ctx, ds, lease)
		}
	}, []string{"extending again is harmless"}},

	{"knows deliveries by their ID alone", func(f *faulty, _ *workertest.Harness) {
		f.translate(func(d *duly.Delivery) *duly.Delivery { return f.newest[d.ID] })
	}, []string{
		"settling what ran out is lost and harmless", "extending what ran out is lost and harmless",
		"extending tells which are lost", "settling a batch does each as it says",
	}},

	{"reports nothing as lost", func(f *faulty, _ *workertest.Harness) {
		f.lost(func([]*duly.Delivery) []*duly.Delivery { return nil })
	}, []string{
		"settling what ran out is lost and harmless", "settling twice is lost and harmless",
		"settling a batch does each as it says", "of many that settle a delivery one does",
		"a delivery that is twice in a batch is settled once",
		"extending what ran out is lost and harmless", "extending what has settled is lost and harmless",
	}},

	{"reports copies as lost", func(f *faulty, _ *workertest.Harness) {
		f.lost(func(lost []*duly.Delivery) []*duly.Delivery {
			for i, d := range lost {
				again := *d
				lost[i] = &again
			}
			return lost
		})
	}, []string{"settling what ran out is lost and harmless", "extending what ran out is lost and harmless"}},
}

// becomes makes one action do what another does.
func becomes(from, to duly.Action) func(*faulty, *workertest.Harness) {
	return func(f *faulty, _ *workertest.Harness) {
		f.rewrite(func(how *duly.Settlement) {
			if how.Action == from {
				how.Action = to
			}
		})
	}
}

var settleFaults = []fault{
	{"releases what is acked", becomes(duly.Acked, duly.Released), []string{"an acked task is gone"}},
	{"releases what is dropped", becomes(duly.Dropped, duly.Released), []string{"a dropped task is gone"}},
	{"drops what is buried", becomes(duly.Buried, duly.Dropped), []string{"a buried task is dead"}},
	{"drops what is retried", becomes(duly.Retried, duly.Dropped), []string{"a retried task is due at once"}},
	{"releases what is retried", becomes(duly.Retried, duly.Released), []string{
		"a retried task is due at once", "failures alone count as attempts", "two poppers never hold one task",
		"a retried holder lets the next one go first",
	}},
	{"retries what is released", becomes(duly.Released, duly.Retried), []string{
		"failures alone count as attempts", "a released task keeps its due time and its place",
		"a released holder goes first again",
	}},

	{"ignores delays", func(f *faulty, _ *workertest.Harness) {
		f.rewrite(func(how *duly.Settlement) { how.In = 0 })
	}, []string{
		"a retried task is due after its delay", "a released task is due after its delay",
		"a snoozed holder lets the next one go first",
	}},

	{"settles the first of a batch", func(f *faulty, _ *workertest.Harness) {
		f.settle = func(ctx context.Context, ss []duly.Settlement) ([]*duly.Delivery, error) {
			return f.Source.Settle(ctx, ss[:1])
		}
	}, []string{"settling a batch does each as it says", "two poppers never hold one task"}},
}
