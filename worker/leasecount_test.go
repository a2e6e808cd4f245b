package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

func TestAnExtensionCountsFromBeforeItsRequest(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, h := newFake("q"), watch(time.Hour)
		calls := 0
		f.before = on("extend", func(context.Context) error {
			if calls++; calls > 1 {
				return errAway
			}
			return nil
		})
		f.after = on("extend", func(context.Context) error {
			time.Sleep(4 * time.Second) // the reply takes its time
			return nil
		})
		f.add("a", 0)
		launch(t, h, worker.Config{Lease: 15 * time.Second}, f)
		<-h.ends
		wants(t, h.cause, duly.ErrLeaseLost)
		within(t, "the context ended after the extension by", h.stopped.Sub(f.told("extend")[0].at), 14*time.Second, 15*time.Second-1)
	})
}
