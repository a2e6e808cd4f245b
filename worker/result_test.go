package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// On a real Redis, from the handler to the one who waits.
func TestAHandlerMaySetAResultAndReportProgress(t *testing.T) {
	t.Parallel()
	q := benchQueue(t)
	type sum struct{ Total int }
	reported, seen := make(chan struct{}), make(chan struct{})
	launch(t, handler(func(ctx context.Context, d *duly.Delivery) error {
		if d.Attempt == 1 {
			must(t, d.SetResult("of the attempt that fails"))
			return duly.RetryIn(0, errors.New("boom"))
		}
		must(t, d.Progress(ctx, 0.25))
		must(t, d.Progress(ctx, 0.5))
		close(reported)
		<-seen
		return d.SetResult(sum{42})
	}), worker.Config{}, q)
	_, err := q.Enqueue(t.Context(), duly.Task{ID: "a", Kind: "k", Retain: time.Hour})
	must(t, err)
	<-reported
	info, err := q.Get(t.Context(), "a")
	must(t, err)
	if info.State != queue.Leased || string(info.Progress) != "0.5" {
		t.Errorf("%s, progress %q while it runs", info.State, info.Progress)
	}
	close(seen)
	ended, err := q.Wait(t.Context(), "a")
	must(t, err)
	var got sum
	must(t, ended.Decode(&got))
	if got.Total != 42 {
		t.Errorf("waited for %+v", ended)
	}
	info, err = q.Get(t.Context(), "a")
	must(t, err)
	if info.State != queue.Done || string(info.Result) != `{"Total":42}` || string(info.Progress) != "0.5" {
		t.Errorf("%s, result %q, progress %q", info.State, info.Result, info.Progress)
	}
}

func TestAResultIsSettledWithAnAcknowledgementAlone(t *testing.T) {
	for want, answer := range map[duly.Action]error{
		duly.Acked: nil, duly.Retried: errAway, duly.Released: duly.Snooze(time.Hour), duly.Buried: duly.Bury(errAway), duly.Dropped: duly.Drop(errAway),
	} {
		t.Run(string(want), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f := newFake("q")
				f.add("a", 0)
				launch(t, handler(func(_ context.Context, d *duly.Delivery) error {
					must(t, d.SetResult(1))
					return answer
				}), worker.Config{Backoff: func(int, error, *duly.Task) time.Duration { return time.Hour }}, f)
				pass(time.Second)
				end := f.ends("a")[0]
				if end.Action != want || (string(end.Result) == "1") != (want == duly.Acked) {
					t.Errorf("settled as %s with the result %q", end.Action, end.Result)
				}
			})
		})
	}
}

func TestProgressOfAStolenTaskSaysThatItsLeaseIsLost(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.add("a", 0)
		told := make(chan error, 2)
		launch(t, handler(func(ctx context.Context, d *duly.Delivery) error {
			told <- d.Progress(ctx, 1)
			f.steal("a")
			told <- d.Progress(ctx, 2)
			return nil
		}), worker.Config{}, f)
		must(t, <-told)
		wants(t, <-told, duly.ErrLeaseLost)
		pass(0)
		if got := f.tasks["a"].progress; got != "1" {
			t.Errorf("the progress is %q", got)
		}
	})
}
