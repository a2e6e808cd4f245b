package workertest_test

import (
	"context"
	"errors"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker/workertest"
)

// retains changes for how long tasks ask to be kept.
func retains(h *workertest.Harness, change func(time.Duration) time.Duration) {
	enqueue := h.Enqueue
	h.Enqueue = func(ctx context.Context, task duly.Task, in time.Duration) error {
		task.Retain = change(task.Retain)
		return enqueue(ctx, task, in)
	}
}

var resultFaults = []fault{
	{"keeps nothing", func(_ *faulty, h *workertest.Harness) {
		retains(h, func(time.Duration) time.Duration { return 0 })
	}, []string{"a task that asks for it is kept when it is done", "a result is that of the settlement that ended the task"}},

	{"keeps for ever", func(_ *faulty, h *workertest.Harness) {
		retains(h, func(d time.Duration) time.Duration { return min(d*1000, 24*time.Hour) })
	}, []string{"a done task is forgotten in time"}},

	{"lets a done task block", func(f *faulty, h *workertest.Harness) {
		enqueue := h.Enqueue
		h.Enqueue = func(ctx context.Context, task duly.Task, in time.Duration) error {
			if info, _ := f.Get(ctx, task.ID); info.State == workertest.Done {
				return nil
			}
			return enqueue(ctx, task, in)
		}
	}, []string{"a done task does not block a new one"}},

	{"acknowledges what is dropped", becomes(duly.Dropped, duly.Acked), []string{"a task that was not done is not kept"}},

	{"overwrites results", func(f *faulty, h *workertest.Harness) {
		var last []byte
		settle := f.settle
		f.settle = func(ctx context.Context, ss []duly.Settlement) ([]*duly.Delivery, error) {
			if ss[0].Result != nil {
				last = ss[0].Result
			}
			return settle(ctx, ss)
		}
		h.Report = func(ctx context.Context, id string) ([]byte, []byte, error) {
			info, err := f.Get(ctx, id)
			return last, info.Progress, err
		}
	}, []string{
		"a result is that of the settlement that ended the task", "a result of a failed attempt is not kept",
	}},

	{"keeps the first progress", func(f *faulty, _ *workertest.Harness) {
		reported := false
		f.progress = func(ctx context.Context, d *duly.Delivery, progress []byte) error {
			if reported {
				return nil
			}
			reported = true
			return f.Source.Progress(ctx, d, progress)
		}
	}, []string{"the latest progress is seen", "progress of what is not held is lost and harmless"}},

	{"does not say that progress is lost", func(f *faulty, _ *workertest.Harness) {
		f.progress = func(ctx context.Context, d *duly.Delivery, progress []byte) error {
			if err := f.Source.Progress(ctx, d, progress); !errors.Is(err, duly.ErrLeaseLost) {
				return err
			}
			return nil
		}
	}, []string{"progress of what is not held is lost and harmless"}},
}
