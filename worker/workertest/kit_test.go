package workertest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker/workertest"
)

// inMemory is the harness of a source in memory. Its clock moves by Advance.
func inMemory(*testing.T) workertest.Harness {
	src := workertest.NewSource("orders")
	h := bubbled(src)
	h.Sleep, h.Now = src.Advance, src.Now
	return h
}

// bubbled is one whose clock is the bubble's.
func bubbled(src *workertest.Source) workertest.Harness {
	return workertest.Harness{
		Source: src,
		Enqueue: func(ctx context.Context, task duly.Task, in time.Duration) error {
			_, err := src.Enqueue(ctx, task, workertest.In(in))
			return err
		},
		State: func(ctx context.Context, id string) (workertest.State, error) {
			info, err := src.Get(ctx, id)
			return info.State, err
		},
		CancelRunning: func(ctx context.Context, id string) error {
			_, err := src.CancelRunning(ctx, id)
			return err
		},
		Report: func(ctx context.Context, id string) ([]byte, []byte, error) {
			info, err := src.Get(ctx, id)
			return info.Result, info.Progress, err
		},
	}
}

func TestSourcePassesKit(t *testing.T) {
	t.Parallel()
	workertest.TestSource(t, inMemory)
}

func TestSourcePassesKitInBubble(t *testing.T) {
	t.Parallel()
	for _, c := range workertest.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { c.Run(t, bubbled(workertest.NewSource("orders"))) })
		})
	}
}

func TestKitRefusesHalfAHarness(t *testing.T) {
	t.Parallel()
	whole := inMemory(t)
	for name, h := range map[string]workertest.Harness{
		"no source":  {Enqueue: whole.Enqueue, State: whole.State},
		"no enqueue": {Source: whole.Source, State: whole.State},
		"no state":   {Source: whole.Source, Enqueue: whole.Enqueue},
	} {
		if r := recordCase(t, workertest.Cases()[0], h); !r.failed {
			t.Errorf("%s: the kit ran", name)
		}
	}
}
