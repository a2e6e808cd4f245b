package workertest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker/workertest"
)

// TestSourceAnswersAsQueueDoes makes random calls of a source and of a queue that
// share the clock of a bubble, and compares every answer.
func TestSourceAnswersAsQueueDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q, err := queue.New(redistest.Virtual(t)(), "orders", queue.Config{})
				must(t, err)
				p := &pair{T: t, rnd: rand.New(rand.NewPCG(seed, 0)), src: workertest.NewSource("orders"), queue: q}
				for range 300 {
					p.step()
				}
				time.Sleep(time.Second) // the subscription of a Wait outlives it
			})
		})
	}
}

// A pair is a source and a queue that should answer alike.
type pair struct {
	*testing.T
	rnd   *rand.Rand
	src   *workertest.Source
	queue *queue.Queue
	held  [][2]*duly.Delivery // deliveries of both, also ended ones
	calls int
}

// same compares what both answered to a call.
func (p *pair) same(call string, fromSource, fromQueue any, errs ...error) {
	p.Helper()
	p.calls++
	if err := errors.Join(errs...); err != nil {
		p.Fatalf("call %d, %s: %v", p.calls, call, err)
	}
	if !reflect.DeepEqual(fromSource, fromQueue) {
		p.Fatalf("call %d, %s: the source answers\n%+v, the queue\n%+v", p.calls, call, fromSource, fromQueue)
	}
}

func (p *pair) step() {
	ctx := p.Context()
	id := string(rune('a' + p.rnd.IntN(8)))
	in := time.Duration(p.rnd.IntN(40)-5) * time.Second
	switch p.rnd.IntN(16) {
	case 0, 1, 2:
		p.enqueue(ctx, id, in)
	case 3, 4:
		p.pop(ctx)
	case 5, 6:
		p.settle(ctx, max(in, 0))
	case 7:
		p.extend(ctx)
	case 8:
		p.recur(ctx, id, max(in, 0))
	case 9:
		a, errA := p.src.Cancel(ctx, id)
		b, errB := p.queue.Cancel(ctx, id)
		p.same("Cancel "+id, string(a), string(b), errA, errB)
	case 10:
		a, errA := p.src.Reschedule(ctx, id, workertest.In(in))
		b, errB := p.queue.Reschedule(ctx, id, queue.In(in))
		p.same("Reschedule "+id, string(a), string(b), errA, errB)
	case 11:
		a, errA := p.src.Revive(ctx, id, "none")
		b, errB := p.queue.Revive(ctx, id, "none")
		p.same("Revive "+id, a, b, errA, errB)
	case 12:
		a, errA := p.src.CancelRunning(ctx, id)
		b, errB := p.queue.CancelRunning(ctx, id)
		p.same("CancelRunning "+id, string(a), string(b), errA, errB)
	case 13:
		p.progress(ctx)
	case 14:
		p.wait(ctx, id)
	case 15:
		time.Sleep(time.Duration(p.rnd.IntN(10_000)) * time.Millisecond)
	}
	p.look(ctx, id)
}

func (p *pair) enqueue(ctx context.Context, id string, in time.Duration) {
	task := duly.Task{
		ID: id, Kind: fmt.Sprint("kind ", p.calls), Payload: []byte(id),
		LockKey: []string{"", "key", "key", "other"}[p.rnd.IntN(4)],
		Retain:  time.Duration(p.rnd.IntN(2)*15) * time.Second,
	}
	mode := []string{"keep", "replace", "earliest"}[p.rnd.IntN(3)]
	ours, theirs := workertest.In(in), queue.In(in)
	if p.rnd.IntN(2) == 0 {
		at := time.Now().Add(in)
		ours, theirs = workertest.At(at), queue.At(at)
	}
	a, errA := p.src.Enqueue(ctx, task, ours, workertest.OnConflict(workertest.Conflict(mode)))
	b, errB := p.queue.Enqueue(ctx, task, theirs, queue.OnConflict(queue.Conflict(mode)))
	p.same("Enqueue "+id+" "+mode, a,
		workertest.Receipt{ID: b.ID, Outcome: workertest.Outcome(b.Outcome), State: workertest.State(b.State), Due: b.Due}, errA, errB)
}

// recur asks for one of a few tasks, so that some are there already.
func (p *pair) recur(ctx context.Context, id string, in time.Duration) {
	task := duly.Task{ID: id, Kind: "recurs", Payload: []byte{byte(p.rnd.IntN(2))}, Every: "@hourly"}
	if task.Payload[0] == 1 {
		task.LockKey = "key"
	}
	first := func(now time.Time) time.Time { return now.Add(in) }
	a, errA := p.src.Recur(ctx, task, first)
	b, errB := p.queue.Recur(ctx, task, first)
	if errors.Is(errA, duly.ErrDead) && errors.Is(errB, duly.ErrDead) {
		return
	}
	p.same("Recur "+id, a, b, errA, errB)
}

func (p *pair) pop(ctx context.Context) {
	n, lease := 1+p.rnd.IntN(3), time.Duration(1+p.rnd.IntN(20))*time.Second
	a, waitA, errA := p.src.Pop(ctx, n, lease)
	b, waitB, errB := p.queue.Pop(ctx, n, lease)
	p.same("Pop", values(a), values(b), errA, errB)
	p.same("Pop's wait", waitA, waitB)
	for i := range a {
		p.held = append(p.held, [2]*duly.Delivery{a[i], b[i]})
	}
}

// some is a batch of deliveries, some of them stale, none of them twice.
func (p *pair) some() (batch [][2]*duly.Delivery) {
	for _, i := range p.rnd.Perm(len(p.held))[:min(len(p.held), 3)] {
		batch = append(batch, p.held[i])
	}
	if len(p.held) > 8 {
		p.held = p.held[1:]
	}
	return batch
}

func (p *pair) settle(ctx context.Context, in time.Duration) {
	var ours, theirs []duly.Settlement
	for _, d := range p.some() {
		how := duly.Settlement{Delivery: d[0], Action: actions[p.rnd.IntN(len(actions))], In: in, At: d[0].Popped.Add(in), Err: errors.New("boom")}
		if p.rnd.IntN(2) == 0 {
			how.Result = fmt.Append(nil, p.calls)
		}
		if how.Action == duly.Repeated && p.rnd.IntN(2) == 0 {
			how.Err = nil
		}
		ours = append(ours, how)
		how.Delivery = d[1]
		theirs = append(theirs, how)
	}
	a, errA := p.src.Settle(ctx, ours)
	b, errB := p.queue.Settle(ctx, theirs)
	p.same("Settle", values(a), values(b), errA, errB)
}

var actions = []duly.Action{duly.Acked, duly.Dropped, duly.Retried, duly.Released, duly.Buried, duly.Repeated}

func (p *pair) extend(ctx context.Context) {
	var ours, theirs []*duly.Delivery
	for _, d := range p.some() {
		ours, theirs = append(ours, d[0]), append(theirs, d[1])
	}
	a, cancelledA, errA := p.src.Extend(ctx, ours, 5*time.Second)
	b, cancelledB, errB := p.queue.Extend(ctx, theirs, 5*time.Second)
	p.same("Extend", values(a), values(b), errA, errB)
	p.same("Extend's cancelled", values(cancelledA), values(cancelledB))
}

func (p *pair) progress(ctx context.Context) {
	for _, d := range p.some() {
		report := fmt.Append(nil, p.calls)
		lost := func(err error) bool { return errors.Is(err, duly.ErrLeaseLost) }
		a, b := p.src.Progress(ctx, d[0], report), p.queue.Progress(ctx, d[1], report)
		p.same("Progress", lost(a), lost(b))
		if !lost(a) {
			p.same("Progress", nil, nil, a, b)
		}
	}
}

// wait compares how tasks ended that have, or are not there.
func (p *pair) wait(ctx context.Context, id string) {
	switch info, _ := p.src.Get(ctx, id); info.State {
	case workertest.Due, workertest.Parked, workertest.Leased:
		return
	}
	a, errA := p.src.Wait(ctx, id)
	b, errB := p.queue.Wait(ctx, id)
	p.same("Wait for nothing", errors.Is(errA, duly.ErrNotFound), errors.Is(errB, duly.ErrNotFound))
	if errA == nil {
		p.same("Wait "+id, fmt.Sprint(a), fmt.Sprint(b), errB)
	}
}

// look compares what both show of themselves.
func (p *pair) look(ctx context.Context, id string) {
	a, errA := p.src.Get(ctx, id)
	b, errB := p.queue.Get(ctx, id)
	if a.State == workertest.Leased {
		a.At = time.Time{} // which a queue does not tell
	}
	p.same("Get "+id, a, infoOf(b), errA, errB)
	p.list(ctx, []workertest.State{
		workertest.Due, workertest.Parked, workertest.Leased, workertest.Dead, workertest.Done,
	}[p.rnd.IntN(5)])
	stats, errA := p.src.Stats(ctx)
	s, errB := p.queue.Stats(ctx)
	p.same("Stats", stats, workertest.Stats{
		Now: s.Now, Due: s.Due, Parked: s.Parked, Ready: s.Ready, Leased: s.Leased, Dead: s.Dead, Done: s.Done,
	}, errA, errB)
}

func (p *pair) list(ctx context.Context, state workertest.State) {
	a, errA := p.src.List(ctx, state, 0, 10)
	listed, errB := p.queue.List(ctx, queue.State(state), 0, 10)
	b := make([]workertest.Info, len(listed))
	for i := range listed {
		b[i] = infoOf(listed[i])
	}
	for i := range a {
		a[i].Replacement = time.Time{} // which a queue's list does not tell
	}
	if state == workertest.Leased { // leases that end together are in no order that matters
		byID := func(a, b workertest.Info) int { return strings.Compare(a.ID, b.ID) }
		slices.SortFunc(a, byID)
		slices.SortFunc(b, byID)
	}
	p.same("List "+string(state), a, b, errA, errB)
}

func infoOf(i queue.Info) workertest.Info {
	return workertest.Info{
		Task: i.Task, State: workertest.State(i.State), At: i.At, Failures: i.Failures, LastError: i.LastError,
		Crashes: i.Crashes, Replacement: i.Replacement, Result: i.Result, Progress: i.Progress,
	}
}

func values(ds []*duly.Delivery) []duly.Delivery {
	all := make([]duly.Delivery, len(ds))
	for i, d := range ds {
		all[i] = *d
	}
	return all
}
