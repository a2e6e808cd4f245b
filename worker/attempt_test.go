package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// observe returns a logger and what it logged.
func observe() (*zap.Logger, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.DebugLevel)
	return zap.New(core), logs
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		task, worker, want time.Duration
	}{
		"the task's beats the worker's":        {task: 2 * time.Second, worker: time.Hour, want: 2 * time.Second},
		"the task's beats a shorter worker's":  {task: time.Hour, worker: 2 * time.Second, want: time.Hour},
		"the worker's, for a task without one": {worker: 90 * time.Second, want: 90 * time.Second},
		"30 minutes by default":                {want: 30 * time.Minute},
		"none":                                 {worker: -1},
		"the task's, if the worker has none":   {task: time.Minute, worker: -1, want: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				f := newFake("q")
				f.addTask(duly.Task{ID: "a", Kind: "k", Timeout: c.task}, 0)
				var took time.Duration
				launch(t, handler(func(ctx context.Context, _ *duly.Delivery) error {
					began := time.Now()
					select {
					case <-ctx.Done():
						wants(t, context.Cause(ctx), duly.ErrTimeout)
						took = time.Since(began)
					case <-time.After(2 * time.Hour):
					}
					return ctx.Err()
				}), worker.Config{Timeout: c.worker, MaxAttempts: 1}, f)
				pass(2*time.Hour + time.Minute)
				if took != c.want {
					t.Errorf("the context ended after %v, want %v", took, c.want)
				}
				end := f.ends()[0]
				if timedOut := errors.Is(end.Err, duly.ErrTimeout); timedOut != (c.want > 0) {
					t.Errorf("settled as %s: %v", end.Action, end.Err)
				}
			})
		})
	}
}

// A handler that is done in spite of its timeout is done.
func TestTimeoutDoesNotUndoWhatIsDone(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.add("a", 0)
		launch(t, handler(func(ctx context.Context, _ *duly.Delivery) error {
			<-ctx.Done()
			return nil
		}), worker.Config{Timeout: time.Second}, f)
		pass(time.Minute)
		if ends := f.ends(); len(ends) != 1 || ends[0].Action != duly.Acked {
			t.Errorf("settled %+v, want one ack", ends)
		}
	})
}

// A task of a kind without a handler waits for a worker that has one. Meanwhile
// it costs a line a minute, and no attempt.
func TestUnknownKindIsGivenBackForLater(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q, j := openQueue(t, "orders"), new(journal)
		logger, logs := observe()
		old, fresh := duly.NewMux(), duly.NewMux()
		fresh.HandleFunc("new", j.note)
		w := launch(t, old, worker.Config{Logger: logger, MaxAttempts: 1}, q)
		for _, id := range []string{"a", "b", "c"} {
			_, err := q.Enqueue(t.Context(), duly.Task{ID: id, Kind: "new"})
			must(t, err)
		}
		pass(10*time.Minute - time.Second)
		if n := logs.Len(); n != 10 {
			t.Errorf("%d lines in 10 minutes: %v", n, logs.All())
		}
		if s := w.Stats(); s.Unknown != 60 || s.Released != 60 || s.Retried+s.Buried != 0 {
			t.Errorf("counted %+v, want 60 that were unknown and released: 3 tasks every 30 s", s)
		}
		w.stop()
		info, err := q.Get(t.Context(), "a")
		must(t, err)
		if info.State != queue.Due || info.Failures != 0 {
			t.Errorf("the task is %s with %d failures", info.State, info.Failures)
		}

		launch(t, fresh, worker.Config{}, q)
		pass(30 * time.Second)
		for _, e := range j.all() {
			if e.Attempt != 1 {
				t.Errorf("%s ran as attempt %d", e.ID, e.Attempt)
			}
		}
		if n := len(j.all()); n != 3 {
			t.Errorf("%d of 3 tasks ran", n)
		}
	})
}

func TestUnknownDelay(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.add("a", 0)
		launch(t, duly.NewMux(), worker.Config{UnknownDelay: 7 * time.Second}, f)
		pass(time.Second)
		if ends := f.ends(); len(ends) != 1 || ends[0].Action != duly.Released || ends[0].In != 7*time.Second {
			t.Errorf("settled %+v, want one release in 7 s", ends)
		}
	})
}

// What is logged, and counted, of each way to end; payloads never are.
func TestLogAndStats(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		logger, logs := observe()
		mux := duly.NewMux()
		mux.HandleFunc("nil", done)
		mux.HandleFunc("error", answer(errBoom))
		mux.HandleFunc("snooze", answer(duly.Snooze(time.Hour)))
		mux.HandleFunc("bury", answer(duly.Bury(errBoom)))
		mux.HandleFunc("drop", answer(duly.Drop(errBoom)))
		mux.HandleFunc("panic", func(context.Context, *duly.Delivery) error { panic("oh no") })
		hour := func(int, error, *duly.Task) time.Duration { return time.Hour }
		for _, kind := range mux.Kinds() {
			f.addTask(duly.Task{ID: "the-" + kind, Kind: kind, Payload: []byte("canary")}, 0)
		}
		w := launch(t, mux, worker.Config{Logger: logger, Backoff: hour}, f)
		pass(time.Minute)
		want := worker.Stats{Acked: 1, Dropped: 1, Retried: 2, Released: 1, Buried: 1, Panics: 1}
		if got := w.Stats(); got != want {
			t.Errorf("counted %+v, want %+v", got, want)
		}
		levels := make(map[string]zapcore.Level)
		for _, line := range logs.All() {
			fields := line.ContextMap()
			id, _ := fields["id"].(string)
			levels[line.Message+" "+id] = line.Level
			if fields["queue"] != "q" || fields["kind"] == nil || fields["attempt"] != int64(1) {
				t.Errorf("%s: fields %v", line.Message, fields)
			}
			for name, value := range fields {
				if value == "canary" {
					t.Errorf("%s: field %s holds the payload", line.Message, name)
				}
			}
		}
		for line, level := range map[string]zapcore.Level{
			"task failed the-error": zapcore.WarnLevel, "task buried the-bury": zapcore.ErrorLevel,
			"task dropped the-drop": zapcore.InfoLevel, "handler panicked the-panic": zapcore.ErrorLevel,
			"task failed the-panic": zapcore.WarnLevel,
		} {
			if got, logged := levels[line]; !logged || got != level {
				t.Errorf("%q is not logged at level %s: %v", line, level, levels)
			}
		}
		if n := len(levels); n != 5 {
			t.Errorf("%d lines, want 5: %v", n, levels)
		}
	})
}

func TestPanicErrorUnwraps(t *testing.T) {
	virtual(t, func(t *testing.T) {
		f := newFake("q")
		f.add("a", 0)
		launch(t, handler(func(context.Context, *duly.Delivery) error { panic(errBoom) }), worker.Config{MaxAttempts: 1}, f)
		pass(time.Second)
		var panicked *worker.PanicError
		err := f.ends()[0].Err
		wants(t, err, errBoom)
		if !errors.As(err, &panicked) || len(panicked.Stack) == 0 {
			t.Errorf("no stack in %v", err)
		}
	})
}
