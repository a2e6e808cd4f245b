package workertest

import (
	"context"
	"fmt"
	"time"

	"github.com/dulyhq/duly"
)

var watchCases = []testCase{
	{"an earlier task is hinted", hintEarlier},
	{"a task that is settled to be due earlier is hinted", hintSettled},
	{"each watcher is hinted", hintEach},
	{"watching ends with its context", watchEnds},
}

// watch watches until the end of the test or stop, which waits for it.
func (r *rig) watch() (hints <-chan struct{}, stop func()) {
	return r.watchFor(func(time.Duration) bool { return true })
}

// watchFor is watch for some hints alone.
func (r *rig) watchFor(this func(in time.Duration) bool) (hints <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	hinted, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		r.Source.Watch(ctx, func(in time.Duration) {
			if !this(in) {
				return
			}
			select {
			case hinted <- struct{}{}:
			default:
			}
		}, func(string, uint64) {})
	}()
	return hinted, func() {
		r.Helper()
		cancel()
		select {
		case <-ended:
		case <-time.After(patience):
			r.Error("Watch goes on though its context has ended")
		}
	}
}

// hinted makes changes until three of them were hinted. Hints may be lost, and
// may come for other reasons, such as a new connection; but not that often.
func (r *rig) hinted(hints <-chan struct{}, change func(i int)) {
	r.Helper()
	heard := 0
	for i := 0; i < 20 && heard < 3; i++ {
		select {
		case <-hints: // of an earlier change
		default:
		}
		change(i)
		select {
		case <-hints:
			heard++
		case <-time.After(patience / 100):
		}
	}
	if heard < 3 {
		r.Errorf("of 20 changes %d were hinted", heard)
	}
}

// earlier adds a task that is due earlier than those before it.
func (r *rig) earlier(from time.Duration) func(int) {
	return func(i int) {
		r.Helper()
		r.add(from-time.Duration(i)*time.Minute, fmt.Sprint("task ", from, i))
	}
}

func hintEarlier(r *rig) {
	hints, stop := r.watch()
	defer stop()
	r.hinted(hints, r.earlier(2*long))
}

func hintSettled(r *rig) {
	for i := range 20 {
		r.add(0, fmt.Sprint("task ", i))
	}
	ds, _ := r.pop(20, 4*long)
	if len(ds) != 20 {
		r.Fatalf("popped %q, want 20 tasks", idsOf(ds))
	}
	hints, stop := r.watch()
	defer stop()
	r.hinted(hints, func(i int) {
		action := []duly.Action{duly.Retried, duly.Released}[i%2]
		r.settle(ds[i], action, 2*long-time.Duration(i)*time.Minute)
	})
}

func hintEach(r *rig) {
	first, stopFirst := r.watch()
	defer stopFirst()
	second, stopSecond := r.watch()
	defer stopSecond()
	r.hinted(first, r.earlier(2*long))
	r.hinted(second, r.earlier(long))
}

func watchEnds(r *rig) {
	hints, stop := r.watch()
	r.hinted(hints, r.earlier(2*long))
	stop()
	select {
	case <-hints: // of before the end
	default:
	}
	r.add(0, "now")
	select {
	case <-hints:
		r.Error("a hint came after Watch had returned")
	case <-time.After(short):
	}
}
