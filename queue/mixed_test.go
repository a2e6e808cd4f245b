package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// A batch of 500 that mixes all actions with all that may have happened to a task
// meanwhile leaves each as it would alone.
func TestABatchOfAllThereIs(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	ctx := t.Context()
	actions := []duly.Action{duly.Acked, "result", "retain", "retain+result", duly.Dropped, duly.Retried, duly.Released, "snooze", duly.Buried, duly.Repeated, "repeat failed"}
	fates := []string{"", "stale", "twice", "replaced", "cancelled", "last", "cancelled+replaced", "crashed", "failed", "progress"}
	type unit struct {
		action duly.Action
		fate   string
		keyed  bool
	}
	var units []unit
	for _, a := range actions {
		for _, f := range fates {
			units = append(units, unit{a, f, false}, unit{a, f, true})
		}
	}
	name := func(i int) string { return fmt.Sprintf("%03d", i) }
	for i, u := range units {
		tk := task(name(i))
		if u.keyed {
			tk.LockKey = "key" + name(i)
		}
		if u.action == duly.Repeated || u.action == "repeat failed" || u.fate == "last" {
			tk.Every = "@hourly"
		} else if u.action == "retain" || u.action == "retain+result" {
			tk.Retain = time.Hour
		}
		_, err := r.q.Enqueue(ctx, tk)
		must(t, err)
	}
	ds := r.pop(t, 500)
	equal(t, "popped", len(ds), len(units))
	for i, u := range units { // what comes back at once
		switch u.fate {
		case "stale", "crashed":
			r.lapse(t, ds[i])
		case "failed":
			r.settle(t, duly.Retried, ds[i])
		}
	}
	again := map[string]*duly.Delivery{}
	for range 3 {
		for _, d := range r.pop(t, 500) {
			again[d.ID] = d
		}
	}
	waits := map[string]*waiting{}
	for i, u := range units {
		id := name(i)
		switch u.fate {
		case "crashed", "failed":
			ds[i] = again[id]
		case "replaced":
			_, err := r.q.Enqueue(ctx, task(id), queue.In(time.Hour), queue.OnConflict(queue.Replace))
			must(t, err)
		case "cancelled":
			_, err := r.q.CancelRunning(ctx, id)
			must(t, err)
		case "last":
			_, err := r.q.Cancel(ctx, id)
			must(t, err)
		case "cancelled+replaced":
			_, err := r.q.CancelRunning(ctx, id)
			must(t, err)
			_, err = r.q.Enqueue(ctx, task(id), queue.In(time.Hour), queue.OnConflict(queue.Replace))
			must(t, err)
		case "progress":
			must(t, r.q.Progress(ctx, ds[i], []byte("1")))
		}
		w := &waiting{over: make(chan struct{})}
		waits[id] = w
	}
	wctx, stop := context.WithCancel(ctx)
	defer stop()
	for i := range units {
		w, id := waits[name(i)], name(i)
		go func() {
			defer close(w.over)
			w.ended, w.err = r.q.Wait(wctx, id)
		}()
	}
	r.awaitLooks(t, len(units))
	var ss []duly.Settlement
	var wantLost []string
	at := ds[0].Popped.Add(time.Hour)
	boom := errors.New("boom")
	for i, u := range units {
		s := duly.Settlement{Delivery: ds[i], Action: u.action, Err: boom}
		switch u.action {
		case "result":
			s.Action, s.Result, s.Err = duly.Acked, []byte(`{"a":1}`), nil
		case "retain":
			s.Action = duly.Acked
		case "retain+result":
			s.Action, s.Result = duly.Acked, []byte(`"x"`)
		case "snooze":
			s.Action, s.In = duly.Released, time.Hour
		case duly.Repeated:
			s.At, s.Err, s.Result = at, nil, []byte(`7`)
		case "repeat failed":
			s.Action, s.At = duly.Repeated, at
		case duly.Retried:
			s.In = time.Hour
		}
		ss = append(ss, s)
		if u.fate == "twice" {
			ss = append(ss, duly.Settlement{Delivery: ds[i], Action: duly.Buried, Err: boom})
		}
		if u.fate == "twice" || u.fate == "stale" {
			wantLost = append(wantLost, name(i))
		}
	}
	if len(ss) > 500 {
		t.Fatal(len(ss))
	}
	lost, err := r.q.Settle(ctx, ss)
	must(t, err)
	equal(t, "lost", ids(lost), wantLost)
	for i, u := range units {
		id, info := name(i), r.get(t, name(i))
		what := fmt.Sprintf("%s of %q keyed %v", u.action, u.fate, u.keyed)
		acks := u.action == duly.Acked || u.action == "result" || u.action == "retain" || u.action == "retain+result"
		var want queue.State
		ended := duly.Action("")
		switch {
		case u.fate == "stale":
			want = queue.Leased
		case u.fate == "replaced" || u.fate == "cancelled+replaced":
			want = queue.Due
			switch {
			case u.action == duly.Repeated:
				ended = duly.Acked
			case u.action == "repeat failed" && u.fate == "replaced":
				ended = duly.Repeated
			case u.action == "repeat failed":
				ended = duly.Cancelled
			}
		case (u.fate == "cancelled" || u.fate == "last") && !acks:
			want, ended = queue.Missing, duly.Cancelled
			if u.action == duly.Repeated {
				ended = duly.Acked
			}
		case acks:
			want, ended = queue.Missing, duly.Acked
			if (u.action == "retain" || u.action == "retain+result") && u.fate != "last" {
				want = queue.Done
			}
		case u.action == duly.Dropped:
			want, ended = queue.Missing, duly.Dropped
		case u.action == duly.Buried:
			want, ended = queue.Dead, duly.Buried
		case u.action == duly.Repeated:
			want, ended = queue.Due, duly.Acked
		case u.action == "repeat failed":
			want, ended = queue.Due, duly.Repeated
		default:
			want = queue.Due
		}
		if info.State != want {
			t.Errorf("%s: is %s, want %s", what, info.State, want)
		}
		w := waits[id]
		if ended == "" {
			select {
			case <-w.over:
				t.Errorf("%s: wait returned %+v, %v", what, w.ended, w.err)
			default:
			}
		} else if got := w.get(t); got.Action != ended {
			t.Errorf("%s: ended by %s, want %s", what, got.Action, ended)
		}
		if u.keyed && u.fate != "stale" {
			if n := r.Exists(ctx, r.key("lock:key"+id)).Val(); n != 0 {
				t.Errorf("%s: its key is still locked", what)
			}
		}
		for _, hash := range []string{"cancel", "next"} {
			if r.HExists(ctx, r.key(hash), id).Val() {
				t.Errorf("%s: left in %s", what, hash)
			}
		}
		if u.fate == "progress" && (want == queue.Missing || u.action == duly.Repeated || u.action == "repeat failed") && info.Progress != nil {
			t.Errorf("%s: progress left", what)
		}
	}
	stop()
	for _, w := range waits {
		<-w.over
	}
}

// Who waits and gives up leaves entries for a minute: they do not pile up.
func TestWaitsThatGiveUpDoNotPileUp(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	most := int64(0)
	for round := range 8 {
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 200 {
			c.enqueue(t, fmt.Sprintf("%d-%d", round, i), queue.In(1000*time.Hour))
		}
		done := make(chan struct{}, 200)
		for i := range 200 {
			go func() {
				_, _ = c.q.Wait(ctx, fmt.Sprintf("%d-%d", round, i))
				done <- struct{}{}
			}()
		}
		c.awaitLooks(t, 200)
		cancel()
		for range 200 {
			<-done
		}
		n := c.ZCard(t.Context(), c.key("wanted")).Val()
		most = max(most, n)
		c.step(61 * time.Second)
	}
	if most > 400 {
		t.Errorf("%d entries", most)
	}
}
