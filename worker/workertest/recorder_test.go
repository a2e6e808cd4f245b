package workertest_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/dulyhq/duly/worker/workertest"
)

// A recorder is a test whose failure is no failure of the one that it lies in.
type recorder struct {
	testing.TB

	mu      sync.Mutex // guards what follows
	failed  bool
	skipped bool
	log     string
}

func (r *recorder) record(failed bool, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = r.failed || failed
	r.log += text + "\n"
}

func (r *recorder) Helper()                           {}
func (r *recorder) Error(args ...any)                 { r.record(true, fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.record(true, fmt.Sprintf(format, args...)) }

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skip(args ...any) {
	r.record(false, fmt.Sprint(args...))
	r.skipped = true
	runtime.Goexit()
}

// recordCase runs a test of the kit in a goroutine of its own, which it may end.
func recordCase(t *testing.T, c workertest.Case, h workertest.Harness) *recorder {
	t.Helper()
	r := &recorder{TB: t}
	return r.run(func() { c.Run(r, h) })
}

func (r *recorder) run(test func()) *recorder {
	done := make(chan struct{})
	go func() {
		defer close(done)
		test()
	}()
	<-done
	return r
}
