package queue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// A modelWait is a Wait that goes on beside the history.
type modelWait struct {
	id     string
	cancel context.CancelFunc
	answer chan string
}

// progress reports the progress of a delivery, held or not.
func (s *machine) progress(rt *rapid.T) {
	d := s.drawKnown(rt)[0]
	s.count++
	report := fmt.Sprint(s.count)
	err := s.q.Progress(rt.Context(), d, []byte(report))
	if t := s.m.held(d); t != nil {
		check(rt, err)
		t.progress = report
	} else if !errors.Is(err, duly.ErrLeaseLost) {
		rt.Fatalf("progress of a delivery that is not held: %v", err)
	}
}

// wait begins to wait for a task, or is answered at once. It waits only where time
// goes by itself: what is kept for those who wait is kept for a minute.
func (s *machine) wait(rt *rapid.T) {
	id := machineIDs().Draw(rt, "id")
	now := s.during(rt, func() error { return nil })
	w := &modelWait{id: id, answer: make(chan string, 1)}
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(context.Background())
	switch state := s.m.state(id, now); state {
	case queue.Due, queue.Leased:
		if s.step != nil {
			w.cancel()
			rt.Skip("the clock stands still")
		}
		go w.run(ctx, s.q)
		s.waits = append(s.waits, w)
		s.awaitLooks(rt, len(s.waits))
	default:
		defer w.cancel()
		w.run(ctx, s.q)
		want, t := duly.ErrNotFound.Error(), s.m.tasks[id]
		switch {
		case state == queue.Done:
			want = "ack: " + t.result
		case state == queue.Dead && t.crashes > 0:
			want = "bury: " + duly.ErrCrashed.Error()
		case state == queue.Dead:
			want = "bury: test"
		}
		same(rt, "wait for "+id, <-w.answer, want)
	}
}

func (w *modelWait) run(ctx context.Context, q *queue.Queue) {
	ended, err := q.Wait(ctx, w.id)
	switch {
	case errors.Is(err, duly.ErrNotFound):
		w.answer <- duly.ErrNotFound.Error()
	case err != nil:
		w.answer <- err.Error()
	case ended.Err != nil:
		w.answer <- fmt.Sprintf("%s: %v", ended.Action, ended.Err)
	default:
		w.answer <- fmt.Sprintf("%s: %s", ended.Action, ended.Result)
	}
}

// awaitLooks waits until n waits have looked.
func (s *machine) awaitLooks(rt *rapid.T, n int) {
	for deadline := time.Now().Add(10 * time.Second); s.q.Looked() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			rt.Fatalf("%d of %d waits have looked in 10 s", s.q.Looked(), n)
		}
	}
}

// compareWaits wants an answer to each wait for a task that has ended, and to no
// other.
func (s *machine) compareWaits(rt *rapid.T) {
	var going []*modelWait
	for _, w := range s.waits {
		want, over := s.m.ends[w.id]
		if !over {
			going = append(going, w)
			continue
		}
		select {
		case got := <-w.answer:
			w.cancel()
			same(rt, "wait for "+w.id, got, want)
		case <-time.After(20 * time.Second):
			rt.Fatalf("no answer to a wait for %s, which ended by %s", w.id, want)
		}
	}
	s.waits = going
	clear(s.m.ends)
	for _, w := range s.waits {
		if len(w.answer) > 0 {
			rt.Fatalf("the wait for %s is answered %s, and the task goes on", w.id, <-w.answer)
		}
	}
}

func (s *machine) endWaits() {
	for _, w := range s.waits {
		w.cancel()
		<-w.answer
	}
}
