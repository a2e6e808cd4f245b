package worker_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

const simAttempts = 4

// A simRun is one call of a handler.
type simRun struct {
	d       duly.Delivery
	worker  *simWorker
	act     simAct
	cause   error // of the end of its context, when it returned
	ended   bool
	settled bool
}

func runName(d *duly.Delivery) string { return fmt.Sprint(d.ID, "#", d.Fence) }

func simBackoff(attempt int, _ error, _ *duly.Task) time.Duration {
	return time.Duration(attempt) * 20 * time.Second
}

// start starts a worker in a place. One that is there drains meanwhile.
func (s *sim) start(who int, crew simCrew) {
	if w := s.workers[who]; w != nil {
		s.waits.Go(func() { s.drain(w) })
		s.links[who] = new(simLink) // the old one stays that of the old worker
	}
	link := s.links[who]
	client := link.client(s.base)
	ctx, cancel := context.WithCancel(context.Background())
	w := &simWorker{
		sim: s, link: link, crew: crew, dead: make(chan struct{}), hurry: make(chan struct{}, 1),
		over: make(chan struct{}), ended: make(chan struct{}), stop: cancel,
	}
	w.Queue = s.openOn(client)
	w.Worker = worker.New(duly.HandlerFunc(func(ctx context.Context, d *duly.Delivery) error {
		return s.handle(ctx, w, d)
	}), worker.Config{
		Concurrency: crew.concurrency, Lease: crew.lease, MaxAttempts: simAttempts, Backoff: simBackoff, Logger: zap.NewNop(),
	}, w)
	s.workers[who] = w
	go func() {
		defer close(w.ended)
		_ = w.Run(ctx) // an error if a handler is deaf for longer than it drains
		_ = client.Close()
	}()
}

// drain stops a worker and waits for it. It may be called again.
func (s *sim) drain(w *simWorker) {
	if w == nil {
		return
	}
	s.alone(func() {
		select {
		case <-w.over:
		default:
			close(w.over)
		}
	})
	w.stop()
	<-w.ended
}

// crash ends a worker as a kill does: from now on nothing it does reaches Redis, its
// handlers return without an effect, and its goroutines end.
func (s *sim) crash(who int) {
	w := s.workers[who]
	if w == nil || w.crashed() {
		return
	}
	s.alone(func() {
		s.tally["crashed"]++
		close(w.dead)
		w.link.kill()
	})
	s.waits.Go(func() { s.drain(w) })
	s.links[who] = new(simLink)
	s.workers[who] = nil
}

// handle is the handler of all workers: it does what the plan has for this run.
func (s *sim) handle(ctx context.Context, w *simWorker, d *duly.Delivery) error {
	r := s.began(w, d)
	if r == nil {
		return errCrashed
	}
	timer := time.NewTimer(r.act.takes)
	defer timer.Stop()
	done := ctx.Done()
	if r.act.deaf {
		done = nil
	}
	cut := false
	select {
	case <-timer.C:
	case <-done:
		cut = true
	case <-w.dead:
		return errCrashed
	}
	return s.answer(ctx, r, d, cut)
}

// began notes a run and checks that it might begin.
func (s *sim) began(w *simWorker, d *duly.Delivery) *simRun {
	s.gate <- struct{}{}
	defer func() { <-s.gate }()
	if w.crashed() {
		return nil
	}
	now := time.Now()
	t, name := s.m.held(d), runName(d)
	switch {
	case s.runs[name] != nil:
		s.errorf("%s runs twice", name)
	case t == nil || t.end <= now.UnixMicro():
		s.errorf("%s runs without a lease: %+v", name, s.m.tasks[d.ID])
	case now.Before(d.Due):
		s.errorf("%s runs before %v", name, d.Due)
	case !d.Expires.IsZero() && now.Truncate(time.Microsecond).After(d.Expires):
		s.errorf("%s runs after it expired at %v", name, d.Expires)
	}
	for _, of := range []string{"id " + d.ID, "key " + d.LockKey} {
		if of != "key " && d.Fence <= s.last[of] {
			s.errorf("%s runs after fence %d of %s", name, s.last[of], of)
		}
		s.last[of] = d.Fence
	}
	for other, o := range s.runs {
		shared := o.d.ID == d.ID || d.LockKey != "" && o.d.LockKey == d.LockKey
		if shared && !o.ended && !o.worker.crashed() && (s.m.held(&o.d) != nil || !o.act.deaf) {
			s.errorf("%s runs beside %s", name, other)
		}
	}
	r := &simRun{d: *d, worker: w, act: simAct{answer: "ok"}}
	if acts := s.acts[string(d.Payload)]; len(acts) > 0 {
		r.act, s.acts[string(d.Payload)] = acts[0], acts[1:]
	}
	s.runs[name] = r
	s.tally["runs"]++
	return r
}

// answer ends a run as planned, or for the end of its context.
func (s *sim) answer(ctx context.Context, r *simRun, d *duly.Delivery, cut bool) error {
	s.gate <- struct{}{}
	defer func() { <-s.gate }()
	if r.worker.crashed() {
		return errCrashed
	}
	r.ended, r.cause = true, context.Cause(ctx)
	if s.m.held(d) == nil || s.m.tasks[d.ID].end <= time.Now().UnixMicro() {
		s.tally["stale"]++
		if !r.act.deaf {
			s.errorf("%s goes on without its lease: %v", runName(d), r.cause)
		}
	}
	if cut {
		r.act.answer = "fail"
		return ctx.Err()
	}
	switch r.act.answer {
	case "fail":
		return errBoom
	case "panic":
		panic(errBoom)
	case "retry":
		return duly.RetryIn(r.act.in, errBoom)
	case "snooze":
		return duly.Snooze(r.act.in)
	case "bury":
		return duly.Bury(errBoom)
	case "drop":
		return duly.Drop(errBoom)
	}
	if err := d.SetResult(string(d.Payload)); err != nil {
		s.errorf("result: %v", err)
	}
	return nil
}

// judge checks that what a worker makes of a run is what its handler asked for.
func (s *sim) judge(m *simModel, got duly.Settlement, now int64, err error) {
	d := got.Delivery
	name, r := runName(d), s.runs[runName(d)]
	want := ""
	switch {
	case r == nil && errors.Is(got.Err, duly.ErrExpired):
		want = string(duly.Buried)
		if d.OnExpiry == duly.Dropped {
			want = string(duly.Dropped)
		}
		s.tally["expired"]++
		if d.Expires.IsZero() || now <= d.Expires.UnixMicro() {
			m.complain("%s expired early", name)
		}
	case r == nil && errors.Is(got.Err, duly.ErrCancelled):
		want = string(duly.Dropped)
	case r == nil:
		want = string(duly.Released)
	case !r.ended:
		m.complain("%s is settled by %s and runs", name, got.Action)
	case r.settled:
		m.complain("%s is settled twice", name)
	default:
		want = r.verdict(errors.Is(got.Err, duly.ErrCancelled))
	}
	told := string(got.Action)
	if got.In > 0 {
		told += " in " + got.In.String()
	}
	if want != "" && told != want {
		m.complain("%s is settled by %s (%v), want %s", name, told, got.Err, want)
	}
	if t := m.held(d); errors.Is(got.Err, duly.ErrCancelled) && t != nil && !t.cancelled {
		m.complain("%s is cancelled, says its worker, and was not", name)
	}
	if err == nil && r != nil {
		r.settled = true
		s.tally[string(got.Action)]++
	}
}

// verdict is what a run's answer comes to.
func (r *simRun) verdict(cancelled bool) string {
	most := simAttempts
	if r.d.MaxAttempts > 0 {
		most = r.d.MaxAttempts
	}
	in := time.Duration(0)
	action := map[string]duly.Action{
		"ok": duly.Acked, "snooze": duly.Released, "bury": duly.Buried, "drop": duly.Dropped,
	}[r.act.answer]
	failed := action == ""
	switch {
	case action != duly.Acked && cancelled:
		action = duly.Dropped
	case r.act.answer == "snooze":
		in = r.act.in
	case failed && r.act.answer != "retry" && errors.Is(r.cause, duly.ErrStopping):
		action = duly.Released
	case failed && r.d.Attempt >= most:
		action = duly.Buried
	case r.act.answer == "retry":
		action, in = duly.Retried, r.act.in
	case failed:
		action, in = duly.Retried, simBackoff(r.d.Attempt, nil, nil)
	}
	if in > 0 {
		return fmt.Sprintf("%s in %v", action, in)
	}
	return string(action)
}
