package worker_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// TestMain also is the main function of the worker processes that crash tests
// start and kill.
func TestMain(m *testing.M) {
	if os.Getenv(processEnv) != "" {
		os.Exit(processMain())
	}
	logging.Disable() // the client tells of each connection that Redis refuses
	goleak.VerifyTestMain(m)
}

// virtual runs a test in virtual time, beside others.
func virtual(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// A run is a call of Run under way.
type run struct {
	*worker.Worker
	cancel context.CancelFunc
	ended  chan struct{}
	err    error // what Run returned, once it has ended
}

// launch runs a worker until the end of the test, which fails if Run does.
func launch(t *testing.T, h duly.Handler, cfg worker.Config, sources ...worker.Source) *run {
	t.Helper()
	r := launchAny(t, h, cfg, sources...)
	t.Cleanup(func() {
		if r.stop(); r.err != nil {
			t.Errorf("Run returned %v", r.err)
		}
	})
	return r
}

// launchAny is launch for a Run that may fail.
func launchAny(t *testing.T, h duly.Handler, cfg worker.Config, sources ...worker.Source) *run {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	return start(t, worker.New(h, cfg, sources...))
}

// start calls Run.
func start(t *testing.T, w *worker.Worker) *run {
	ctx, cancel := context.WithCancel(context.Background())
	r := &run{Worker: w, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		r.err = r.Run(ctx)
	}()
	t.Cleanup(r.stop)
	return r
}

// stop ends the context of Run and waits for its return.
func (r *run) stop() {
	r.cancel()
	<-r.ended
}

// pass lets virtual time pass, and then all be done that can be.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// openQueue returns a queue on a miniredis that lives in the bubble of the test.
func openQueue(t *testing.T, name string) *queue.Queue {
	t.Helper()
	q, err := queue.New(redistest.Virtual(t)(), name, queue.Config{})
	must(t, err)
	return q
}

// handler is duly.HandlerFunc under a name that fits on a line.
type handler = duly.HandlerFunc

// done is a handler that has nothing to do.
var done = handler(func(context.Context, *duly.Delivery) error { return nil })

// A journal collects what handlers tell it.
type journal struct {
	mu      sync.Mutex
	entries []entry
}

// An entry is one call of a handler.
type entry struct {
	duly.Delivery
	at time.Time
}

func (j *journal) add(d *duly.Delivery) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, entry{*d, time.Now()})
}

// all returns the entries so far, of one task if an ID is given.
func (j *journal) all(ids ...string) []entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	var found []entry
	for _, e := range j.entries {
		if len(ids) == 0 || e.ID == ids[0] {
			found = append(found, e)
		}
	}
	return found
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants fails the test unless err matches the target.
func wants(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("got error %v, want one that matches %q", err, target)
	}
}

// within fails the test unless a duration is between two bounds.
func within(t *testing.T, what string, got, least, most time.Duration) {
	t.Helper()
	if got < least || got > most {
		t.Errorf("%s: %v, want %v to %v", what, got, least, most)
	}
}

// eventually waits until a condition holds, in real time.
func eventually(t testing.TB, what string, most time.Duration, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(most); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not in %v: %s", most, what)
		}
	}
}
