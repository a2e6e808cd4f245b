package workertest_test

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker/workertest"
)

func TestRunDueKeepsResultsAndProgress(t *testing.T) {
	t.Parallel()
	src := workertest.NewSource("orders")
	kept := task("a")
	kept.Retain = time.Hour
	add(t, src, 0, kept)
	runs, err := workertest.RunDue(t.Context(), src, duly.HandlerFunc(func(ctx context.Context, d *duly.Delivery) error {
		must(t, d.Progress(ctx, "half"))
		return d.SetResult(42)
	}))
	must(t, err)
	if len(runs) != 1 || string(runs[0].Result) != "42" {
		t.Errorf("ran %+v", runs)
	}
	info := workertest.RequireState(t, src, "a", workertest.Done)
	if string(info.Result) != "42" || string(info.Progress) != `"half"` {
		t.Errorf("result %q, progress %q", info.Result, info.Progress)
	}
	ended, err := src.Wait(t.Context(), "a")
	must(t, err)
	var n int
	if err := ended.Decode(&n); err != nil || n != 42 {
		t.Errorf("decoded %d, %v", n, err)
	}
	src.Advance(time.Hour)
	workertest.RequireState(t, src, "a", workertest.Missing)
	if _, err := src.Wait(t.Context(), "a"); !errors.Is(err, duly.ErrNotFound) {
		t.Errorf("waiting for what is forgotten: %v", err)
	}
}

func TestWaitReturnsHowATaskEnds(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		end  func(src *workertest.Source) error
		want duly.Action
		err  string
	}{
		"acked":   {answering(nil), duly.Acked, ""},
		"dropped": {answering(duly.Drop(boom)), duly.Dropped, "duly: drop: boom"},
		"buried":  {answering(duly.Bury(boom)), duly.Buried, "duly: bury: boom"},
		"cancelled": {func(src *workertest.Source) error {
			_, err := src.Cancel(context.Background(), "a")
			return err
		}, duly.Cancelled, ""},
		"cancelled as its worker died": {func(src *workertest.Source) error {
			_, _, err := src.Pop(context.Background(), 1, time.Second)
			must(t, err)
			_, err = src.CancelRunning(context.Background(), "a")
			src.Advance(time.Second)
			_, _, over := src.Pop(context.Background(), 1, time.Second)
			return errors.Join(err, over)
		}, duly.Cancelled, ""},
		"crashed": {func(src *workertest.Source) error {
			for range 4 {
				if _, _, err := src.Pop(context.Background(), 1, time.Second); err != nil {
					return err
				}
				src.Advance(time.Second)
			}
			return nil
		}, duly.Buried, duly.ErrCrashed.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				src := workertest.NewSource("orders")
				add(t, src, 0, task("a"))
				answer := make(chan duly.Ended, 1)
				go func() {
					ended, err := src.Wait(t.Context(), "a")
					must(t, err)
					answer <- ended
				}()
				synctest.Wait()
				must(t, c.end(src))
				ended := <-answer
				if ended.Action != c.want || (ended.Err != nil) != (c.err != "") || ended.Err != nil && ended.Err.Error() != c.err {
					t.Errorf("ended by %+v", ended)
				}
				if (ended.Decode(new(int)) == nil) != (c.want == duly.Acked) {
					t.Errorf("decoding it answers %v", ended.Decode(new(int)))
				}
			})
		})
	}
}

// answering ends a task by the answer of its handler.
func answering(answer error) func(*workertest.Source) error {
	return func(src *workertest.Source) error {
		_, err := workertest.RunDue(context.Background(), src, duly.HandlerFunc(func(context.Context, *duly.Delivery) error { return answer }))
		return err
	}
}

func TestWaitReturnsWhenTheRunOfARecurringTaskIsOver(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		answer error
		cancel bool // while it runs
		late   bool
		want   duly.Ended
		state  workertest.State
	}{
		"done":           {nil, false, false, duly.Ended{ID: "a", Action: duly.Acked, Result: []byte("42")}, workertest.Due},
		"dropped":        {duly.Drop(boom), false, false, duly.Ended{ID: "a", Action: duly.Repeated, Err: errors.New("duly: drop: boom")}, workertest.Due},
		"skipped":        {nil, false, true, duly.Ended{ID: "a", Action: duly.Repeated, Err: duly.ErrSkipped}, workertest.Due},
		"the last":       {nil, true, false, duly.Ended{ID: "a", Action: duly.Acked, Result: []byte("42")}, workertest.Missing},
		"the last fails": {boom, true, false, duly.Ended{ID: "a", Action: duly.Cancelled}, workertest.Missing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				src := workertest.NewSource("orders")
				recurs := task("a")
				recurs.Every, recurs.Grace = "@hourly", time.Minute
				add(t, src, 0, recurs)
				answer := make(chan duly.Ended, 1)
				go func() {
					ended, err := src.Wait(t.Context(), "a")
					must(t, err)
					answer <- ended
				}()
				synctest.Wait()
				if c.late {
					src.Advance(time.Hour)
				}
				_, err := workertest.RunDue(t.Context(), src, handler(func(ctx context.Context, d *duly.Delivery) error {
					must(t, d.Progress(ctx, 1))
					if c.cancel {
						_, err := src.Cancel(ctx, "a")
						must(t, err)
					}
					must(t, d.SetResult(42))
					return c.answer
				}))
				must(t, err)
				if got := <-answer; !reflect.DeepEqual(got, c.want) {
					t.Errorf("ended by %+v, want %+v", got, c.want)
				}
				if info := workertest.RequireState(t, src, "a", c.state); len(info.Progress)+len(info.Result) > 0 {
					t.Errorf("left %+v", info)
				}
			})
		})
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	src := workertest.NewSource("orders")
	add(t, src, time.Hour, task("a"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := src.Wait(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if _, err := src.Cancel(t.Context(), "a"); err != nil {
		t.Fatal(err) // and sends to nobody
	}
}
