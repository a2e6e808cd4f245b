package workertest_test

import (
	"context"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker/workertest"
)

// recursBy enqueues a task instead of making sure that it is there.
func recursBy(conflict workertest.Conflict) func(*faulty, *workertest.Harness) {
	return func(f *faulty, _ *workertest.Harness) {
		f.recur = func(ctx context.Context, task duly.Task, first func(time.Time) time.Time) (time.Time, error) {
			receipt, err := f.Enqueue(ctx, task, workertest.At(first(f.Now())), workertest.OnConflict(conflict))
			return receipt.Due, err
		}
	}
}

// repeats changes how a repeated task is settled.
func repeats(change func(how *duly.Settlement)) func(*faulty, *workertest.Harness) {
	return func(f *faulty, _ *workertest.Harness) {
		f.rewrite(func(how *duly.Settlement) {
			if how.Action == duly.Repeated {
				change(how)
			}
		})
	}
}

var recurFaults = []fault{
	{"drops what is repeated", becomes(duly.Repeated, duly.Dropped), []string{
		"a repeated task is due at its time, as if it were new", "settling twice is lost and harmless",
	}},
	{"counts a repetition as a failure", repeats(func(how *duly.Settlement) {
		how.Action, how.In = duly.Retried, how.At.Sub(how.Delivery.Popped)
	}), []string{"a repeated task is due at its time, as if it were new"}},
	{"repeats by the delay", repeats(func(how *duly.Settlement) { how.At = how.Delivery.Popped.Add(how.In) }), []string{
		"a repeated task is due at its time, as if it were new",
	}},

	{"keeps the progress of a run that is over", func(f *faulty, h *workertest.Harness) {
		var last []byte
		f.progress = func(ctx context.Context, d *duly.Delivery, progress []byte) error {
			last = progress
			return f.Source.Progress(ctx, d, progress)
		}
		h.Report = func(ctx context.Context, id string) ([]byte, []byte, error) {
			info, err := f.Get(ctx, id)
			return info.Result, last, err
		}
	}, []string{"the progress of a repeated task goes with its run"}},

	{"keeps what it has", recursBy(workertest.Keep), []string{
		"a recurring task that has changed takes the place of the old one", "a recurring task that runs is changed when it ends",
		"a recurring task that is dead is told, and stays so", "a change loses no tick that is overdue or to be retried",
		"a recurring task that was cancelled as it ran comes back for who asks for it",
	}},
	{"replaces what is the same", recursBy(workertest.Replace), []string{
		"a recurring task is there once, whoever asks for it", "a recurring task that is there keeps its due time",
		"a change loses no tick that is overdue or to be retried", "a recurring task that runs is changed when it ends",
		"a recurring task that is dead is told, and stays so",
	}},
	{"lets the earlier win", recursBy(workertest.Earliest), []string{
		"a recurring task that is there keeps its due time",
	}},
}
