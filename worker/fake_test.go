package worker_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dulyhq/duly"
)

// errAway is what a fake answers when it does not.
var errAway = errors.New("source is away")

// A fake is a Source in memory whose calls a test can watch, fail and hang.
type fake struct {
	name string
	trip time.Duration // of a call, there and back
	mute bool          // hints are lost
	fast time.Duration // its clock is, in the Popped of its deliveries

	mu            sync.Mutex // guards what follows
	before, after hook       // come before and after a call has its effect
	tasks         map[string]*stored
	hints         []func(in time.Duration)
	cancels       []func(id string, fence uint64)
	fence         uint64
	calls         []call
	settled       []duly.Settlement // those that had an effect
}

// A hook does something to a call, such as to let it fail.
type hook func(ctx context.Context, verb string) error

// stored is a task in a fake.
type stored struct {
	task     duly.Task
	due      time.Time
	until    time.Time // when its lease ends; zero if it has none
	fence    uint64
	failures int
	crashes  int
	dead     bool
	progress string

	cancelled bool // its run was
}

// A call is a call of a fake that had its effect.
type call struct {
	verb  string
	at    time.Time
	n     int // the tasks asked for, or told
	tasks int // of a pop: those it got
}

func newFake(name string) *fake { return &fake{name: name, tasks: make(map[string]*stored)} }

func (f *fake) Name() string { return f.name }

// add adds a task that is due in a while.
func (f *fake) add(id string, in time.Duration) { f.addTask(duly.Task{ID: id, Kind: "k"}, in) }

// addMany adds n tasks that are due now.
func (f *fake) addMany(n int) {
	for i := range n {
		f.add(fmt.Sprintf("%s-%06d", f.name, i), 0)
	}
}

func (f *fake) addTask(task duly.Task, in time.Duration) {
	f.mu.Lock()
	f.tasks[task.ID] = &stored{task: task, due: time.Now().Add(in)}
	f.mu.Unlock()
	f.wake()
}

// wake hints as a queue does, but in all cases.
func (f *fake) wake() { f.hint(0) }

func (f *fake) hint(in time.Duration) {
	f.mu.Lock()
	hints := f.hints
	f.mu.Unlock()
	for _, hint := range hints {
		if !f.mute {
			hint(in)
		}
	}
}

func (f *fake) Watch(ctx context.Context, hint func(in time.Duration), cancel func(id string, fence uint64)) {
	f.mu.Lock()
	f.hints, f.cancels = append(f.hints, hint), append(f.cancels, cancel)
	f.mu.Unlock()
	f.wake() // for hints that were missed
	<-ctx.Done()
}

// call lets a call have its effect, unless the test has it otherwise.
func (f *fake) call(ctx context.Context, verb string, effect func(now time.Time) call) error {
	f.mu.Lock()
	before, after := f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(ctx, verb); err != nil {
			return err
		}
	}
	time.Sleep(f.trip / 2)
	f.mu.Lock()
	now := time.Now()
	c := effect(now)
	c.verb, c.at = verb, now
	f.calls = append(f.calls, c)
	f.mu.Unlock()
	time.Sleep(f.trip / 2)
	if after != nil {
		return after(ctx, verb)
	}
	return nil
}

// meddle sets what comes before calls from now on.
func (f *fake) meddle(before hook) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = before
}

func (f *fake) Pop(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
	var got []*duly.Delivery
	wait := 24 * time.Hour
	err := f.call(ctx, "pop", func(now time.Time) call {
		for _, s := range f.runnable(now) {
			if len(got) == n {
				wait = 0
				break
			}
			f.fence++
			s.fence, s.until = f.fence, now.Add(lease)
			got = append(got, &duly.Delivery{
				Task: s.task, Queue: f.name, Due: s.due, Popped: now.Add(f.fast),
				Attempt: s.failures + 1, Crashes: s.crashes, Fence: s.fence,
			})
		}
		for _, s := range f.tasks {
			if !s.dead && wait > 0 {
				wait = min(wait, max(s.due.Sub(now), s.until.Sub(now)))
			}
		}
		return call{n: n, tasks: len(got)}
	})
	if err != nil {
		f.giveBack(got)
		return nil, 0, err
	}
	return got, wait, nil
}

// runnable are the tasks that may be popped, the earliest first. It ends leases
// that ran out.
func (f *fake) runnable(now time.Time) []*stored {
	var found []*stored
	for _, s := range f.tasks {
		if !s.until.IsZero() && !now.Before(s.until) {
			s.until = time.Time{}
			s.crashes++
			if s.cancelled {
				delete(f.tasks, s.task.ID)
				continue
			}
		}
		if !s.dead && s.until.IsZero() && !now.Before(s.due) {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b *stored) int {
		return cmp.Or(a.due.Compare(b.due), strings.Compare(a.task.ID, b.task.ID))
	})
	return found
}

// giveBack is what the next pop would do about a reply that was lost.
func (f *fake) giveBack(ds []*duly.Delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range ds {
		if s := f.held(d); s != nil {
			s.until = time.Time{}
		}
	}
}

// held is the task of a delivery that holds its lease. mu is held.
func (f *fake) held(d *duly.Delivery) *stored {
	if s := f.tasks[d.ID]; s != nil && s.fence == d.Fence && time.Now().Before(s.until) {
		return s
	}
	return nil
}

// cancel cancels the run of a task, and tells its workers unless it is mute.
func (f *fake) cancel(id string) {
	f.mu.Lock()
	s, cancels := f.tasks[id], f.cancels
	s.cancelled = true
	fence := s.fence
	f.mu.Unlock()
	for _, cancel := range cancels {
		if !f.mute {
			cancel(id, fence)
		}
	}
}

func (f *fake) Extend(ctx context.Context, ds []*duly.Delivery, lease time.Duration) (lost, cancelled []*duly.Delivery, err error) {
	err = f.call(ctx, "extend", func(now time.Time) call {
		for _, d := range ds {
			s := f.held(d)
			if s == nil {
				lost = append(lost, d)
				continue
			}
			if s.until = now.Add(lease); s.cancelled {
				cancelled = append(cancelled, d)
			}
		}
		return call{n: len(ds)}
	})
	return lost, cancelled, err
}

func (f *fake) Progress(ctx context.Context, d *duly.Delivery, progress []byte) error {
	held := true
	err := f.call(ctx, "progress", func(time.Time) call {
		if s := f.held(d); s != nil {
			s.progress = string(progress)
		} else {
			held = false
		}
		return call{n: 1}
	})
	if err == nil && !held {
		return duly.ErrLeaseLost
	}
	return err
}

func (f *fake) Settle(ctx context.Context, ss []duly.Settlement) (lost []*duly.Delivery, err error) {
	err = f.call(ctx, "settle", func(now time.Time) call {
		for _, s := range ss {
			if f.settle(s, now) {
				f.settled = append(f.settled, s)
			} else {
				lost = append(lost, s.Delivery)
			}
		}
		return call{n: len(ss)}
	})
	if err == nil {
		f.wake() // what was given back may run elsewhere
	}
	return lost, err
}

func (f *fake) settle(end duly.Settlement, now time.Time) bool {
	s := f.held(end.Delivery)
	if s == nil {
		return false
	}
	s.until, s.crashes = time.Time{}, 0
	action := end.Action
	if s.cancelled {
		action = duly.Dropped // or acked, which is the same here
	}
	switch action {
	case duly.Acked, duly.Dropped:
		delete(f.tasks, s.task.ID)
	case duly.Buried:
		s.dead = true
	case duly.Repeated:
		s.failures, s.due = 0, end.At
	case duly.Retried:
		s.failures++
		s.due = now.Add(end.In)
	case duly.Released:
		if end.In > 0 {
			s.due = now.Add(end.In)
		}
	}
	return true
}

// steal ends the lease of a task and gives it to nobody.
func (f *fake) steal(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tasks[id].fence = 0
}
