package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

func TestADrainDoesNotCancelThePopOnItsWay(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f, j := newFake("q"), new(journal)
		f.after = on("pop", func(ctx context.Context) error {
			select {
			case <-time.After(time.Second):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		w := launch(t, handler(j.note), worker.Config{}, f)
		pass(2 * time.Second)
		f.addMany(5)
		pass(time.Second / 2) // the pop has taken effect, its reply is on its way
		w.stop()
		released := 0
		for _, end := range f.ends() {
			if end.Action == duly.Released {
				released++
			}
		}
		if len(j.all()) != 0 || released != 5 {
			t.Errorf("%d ran and %d were given back, want 0 and 5", len(j.all()), released)
		}
	})
}
