package worker_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

var errCrashed = errors.New("the worker has crashed")

// simPoll is how long a worker of a simulation goes without a look at the queue.
const simPoll = 15 * time.Minute

// A simWorker is a worker of a simulation and the source that it sees: its own
// Queue value over its own client, every call of which is compared with the model.
type simWorker struct {
	*queue.Queue
	sim   *sim
	link  *simLink
	crew  simCrew
	dead  chan struct{} // closed when it crashes: nothing it does counts from then on
	hurry chan struct{} // a hint has come
	over  chan struct{} // closed when it is told to stop
	ended chan struct{} // closed when Run has returned
	empty time.Time     // nothing is due before; only Pop uses it
	stop  context.CancelFunc
	*worker.Worker
}

// crashed reports whether the worker has.
func (w *simWorker) crashed() bool {
	select {
	case <-w.dead:
		return true
	default:
		return false
	}
}

// Name is the queue's; both have one.
func (w *simWorker) Name() string { return w.Queue.Name() }

// Pop asks when there may be something, and waits for that here: 17,280 polls a day
// would be most of what a simulation does.
func (w *simWorker) Pop(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
	if wait := time.Until(w.empty); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-w.hurry:
		case <-w.over:
		case <-w.dead:
		}
		w.empty = time.Time{}
		return nil, 0, nil
	}
	select {
	case <-w.hurry:
	default:
	}
	if w.crashed() {
		return nil, 0, errCrashed
	}
	var got []*duly.Delivery
	var wait time.Duration
	if w.link.isDown() { // a call that reaches nobody is not worth a look at all there is
		return w.Queue.Pop(ctx, n, lease)
	}
	err := w.sim.call("pop", func() (err error) {
		w.link.doing("pop")
		got, wait, err = w.Queue.Pop(context.WithoutCancel(ctx), n, lease)
		return err
	}, func(m *simModel, snap *snapshot, now int64, err error) {
		w.popped(m, snap, now, err, got, n, lease)
	})
	if err == nil && len(got) == 0 {
		w.empty = time.Now().Add(min(wait, simPoll))
	}
	return got, wait, err
}

// popped follows a pop, and checks what it has brought and what it has not.
func (w *simWorker) popped(m *simModel, snap *snapshot, now int64, err error, got []*duly.Delivery, n int, lease time.Duration) {
	again := len(m.unheard[w]) > 0
	for id, t := range m.tasks { // what is on trial puts off others that are on their last chance
		if due := snap.due[id]; t.state == queue.Due && t.crashes == simCrashes-1 && due > t.due {
			if due > now+lease.Microseconds() {
				m.complain("%s was put off from %d to %d", id, t.due, due)
			}
			t.due = due
		}
	}
	leased := m.pop(w, snap.leases, now, lease)
	if err != nil {
		if len(leased) > 0 {
			m.unheard[w] = leased
		}
		return
	}
	if again {
		w.sim.tally["again"]++
	}
	slices.Sort(leased)
	var ids []string
	var last int64
	for _, d := range got {
		ids = append(ids, d.ID)
		t := m.tasks[d.ID]
		if t == nil || t.state != queue.Leased {
			m.complain("%s was popped and is not leased", d.ID)
			continue
		}
		if string(d.Payload) != string(t.Payload) || d.Attempt != t.failures+1 || d.Crashes != t.crashes ||
			d.Fence != t.fence || d.Due.UnixMicro() != t.due || d.Popped.UnixMicro() != now {
			m.complain("%s was delivered as %+v, want %+v", d.ID, *d, *t)
		}
		last = t.due
	}
	slices.Sort(ids)
	if !slices.Equal(ids, leased) {
		m.complain("popped %v, and %v are leased", ids, leased)
	}
	for _, t := range m.ready(now) {
		if !again && (len(got) < n || t.due < last) {
			m.complain("popped %v of %d, and not %s, due at %d", ids, n, t.ID, t.due)
		}
	}
}

func (w *simWorker) Extend(ctx context.Context, ds []*duly.Delivery, lease time.Duration) (lost, cancelled []*duly.Delivery, err error) {
	if w.crashed() {
		return nil, nil, errCrashed
	}
	err = w.sim.call("extend", func() (err error) {
		w.link.doing("extend")
		lost, cancelled, err = w.Queue.Extend(context.WithoutCancel(ctx), ds, lease)
		return err
	}, func(m *simModel, _ *snapshot, now int64, err error) {
		for _, d := range ds {
			held, over := m.extend(d, now, lease)
			if err == nil && (held == slices.Contains(lost, d) || over != slices.Contains(cancelled, d)) {
				m.complain("extend of %s: held %t, cancelled %t", d.ID, held, over)
			}
		}
	})
	return lost, cancelled, err
}

func (w *simWorker) Settle(ctx context.Context, ss []duly.Settlement) (lost []*duly.Delivery, err error) {
	if w.crashed() {
		return nil, errCrashed
	}
	err = w.sim.call("settle", func() (err error) {
		w.link.doing("settle")
		lost, err = w.Queue.Settle(context.WithoutCancel(ctx), ss)
		return err
	}, func(m *simModel, _ *snapshot, now int64, err error) {
		for _, s := range ss {
			w.sim.judge(m, s, now, err)
			if held := m.settle(s, now); err == nil && held == slices.Contains(lost, s.Delivery) {
				m.complain("settling %s by %s: held %t", s.Delivery.ID, s.Action, held)
			}
		}
	})
	return lost, err
}

// Watch passes hints on, unless the worker is deaf.
func (w *simWorker) Watch(ctx context.Context, hint func(in time.Duration), cancel func(id string, fence uint64)) {
	if w.crew.deaf {
		<-ctx.Done()
		return
	}
	w.Queue.Watch(ctx, func(in time.Duration) {
		select {
		case w.hurry <- struct{}{}:
		default:
		}
		hint(in)
	}, cancel)
}
