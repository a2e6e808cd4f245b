package queue_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// A machine does the same to a queue and to its model, and compares them.
type machine struct {
	*rig
	app   map[string]*lock.Lease // what the application holds
	m     *model
	known []*duly.Delivery    // every one received, also those that are stale
	step  func(time.Duration) // moves the clock; nil on a real Redis
	count int
	waits []*modelWait
}

const machineLease = time.Hour

// machineIDs makes a generator. Generators name themselves at their first use, so
// histories that are made at the same time must not share one.
func machineIDs() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"a", "b", "c:1", "d\x20", "é"})
}

// Invariants 1 to 7, whatever is done in whatever order.
func TestAnyHistoryOfVerbsIsThatOfTheModel(t *testing.T) {
	t.Parallel()
	t.Run("mini", func(t *testing.T) {
		t.Parallel()
		m, _ := redistest.Mini(t)
		now := time.UnixMicro(1_000_000_000_123_457)
		m.SetTime(now)
		history(t, newRig(t, dialing("tcp", m.Addr())), func(d time.Duration) {
			now = now.Add(d)
			m.SetTime(now)
			m.FastForward(d)
		})
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		history(t, onRedis(t), nil)
	})
}

func history(t *testing.T, base *rig, step func(time.Duration)) {
	most := machineSteps
	if testing.Short() {
		most /= 50
	}
	n, steps := 0, 0
	for steps < most && !t.Failed() {
		histories(t, base, step, &n, &steps)
	}
	t.Logf("%d steps in %d histories", steps, n)
}

func histories(t *testing.T, base *rig, step func(time.Duration), n, steps *int) {
	rapid.Check(t, func(rt *rapid.T) {
		*n++
		r := *base
		r.name = fmt.Sprintf("%s/%d", base.name, *n)
		limit := rapid.IntRange(1, 4).Draw(rt, "limit")
		r.q = newQueue(t, base.under, r.name, queue.Config{MaxCrashes: limit})
		s := &machine{rig: &r, app: make(map[string]*lock.Lease), step: step, m: newModel(limit)}
		defer s.endWaits()
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				*steps++
				s.compare(rt)
			},
			"enqueue":    s.enqueue,
			"pop":        s.pop,
			"pop again":  s.pop, // more often than others
			"cancel run": s.cancelRunning,
			"settle":     s.settle,
			"extend":     s.extend,
			"cancel":     s.cancel,
			"recur":      s.recur,
			"remove":     s.remove,
			"reschedule": s.reschedule,
			"revive":     s.revive,
			"purge":      s.purge,
			"pause":      s.pause,
			"lock":       s.lock,
			"limit":      s.limit,
			"time":       s.time,
			"progress":   s.progress,
			"wait":       s.wait,
		})
	})
}

// during runs a verb and returns when that was.
func (s *machine) during(rt *rapid.T, verb func() error) span {
	from, err := s.Time(rt.Context()).Result()
	check(rt, err)
	check(rt, verb())
	to, err := s.Time(rt.Context()).Result()
	check(rt, err)
	return span{from.UnixMicro(), to.UnixMicro()}
}

func check(rt *rapid.T, err error) {
	if err != nil {
		rt.Fatal(err)
	}
}

func same(rt *rapid.T, what string, got, want any) {
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		rt.Fatalf("%s: got %s, want %s", what, g, w)
	}
}

// drawTime draws an option, and when that is if it is given at now. Delays and
// times are whole and half hours apart, so that none falls within another's span.
func (s *machine) drawTime(rt *rapid.T) (queue.EnqueueOption, func(now span) span) {
	hours := time.Duration(rapid.IntRange(-1, 4).Draw(rt, "hours")) * time.Hour
	if hours > 0 && rapid.Bool().Draw(rt, "at") {
		now, err := s.Time(rt.Context()).Result()
		check(rt, err)
		at := now.Add(hours + 30*time.Minute)
		return queue.At(at), func(span) span { return span{at.UnixMicro(), at.UnixMicro()} }
	}
	return queue.In(hours), func(now span) span { return now.add(max(hours, 0)) }
}

func (s *machine) enqueue(rt *rapid.T) {
	conflict := rapid.SampledFrom([]queue.Conflict{queue.Keep, queue.Replace, queue.Earliest}).Draw(rt, "conflict")
	var tasks []duly.Task
	for _, id := range rapid.SliceOfN(machineIDs(), 1, 3).Draw(rt, "ids") {
		s.count++
		tasks = append(tasks, duly.Task{
			ID: id, Kind: "test", Payload: fmt.Appendf(nil, "%d:\n\xff", s.count),
			LockKey: rapid.SampledFrom([]string{"", "key", "key:2"}).Draw(rt, "key"),
			Retain:  time.Duration(rapid.IntRange(0, 1).Draw(rt, "retain")) * 90 * time.Minute,
		})
	}
	opt, when := s.drawTime(rt)
	var receipts []queue.Receipt
	now := s.during(rt, func() (err error) {
		receipts, err = s.q.EnqueueMany(rt.Context(), tasks, opt, queue.OnConflict(conflict))
		return err
	})
	for i, got := range receipts {
		outcome, state, due := s.m.enqueue(tasks[i], when(now), now, conflict)
		same(rt, "receipt of "+tasks[i].ID, []any{got.Outcome, got.State, got.Due.IsZero()}, []any{outcome, state, due == span{}})
		if at := got.Due.UnixMicro(); !got.Due.IsZero() && (at < due.lo || at > due.hi) {
			rt.Fatalf("receipt of %s: due at %d, want %d to %d", tasks[i].ID, at, due.lo, due.hi)
		}
	}
}

func (s *machine) pop(rt *rapid.T) {
	n := rapid.IntRange(1, 4).Draw(rt, "n")
	lose := rapid.IntRange(0, 4).Draw(rt, "lose") == 0
	lose = lose && len(s.waits) == 0 // else it may be the reply to a look of theirs that is lost
	if lose {
		s.link.lose()
	}
	var got []*duly.Delivery
	now := s.during(rt, func() (err error) {
		got, _, err = s.q.Pop(rt.Context(), n, machineLease)
		if lose && errors.Is(err, queue.ErrUnknownOutcome) {
			return nil
		}
		return err
	})
	want, again := s.m.pop(n, now, machineLease, lose)
	if len(want) > 0 && !again {
		s.rise(rt, want)
	}
	if lose {
		return
	}
	same(rt, "popped", ids(got), want)
	for _, d := range got {
		t := s.m.tasks[d.ID]
		same(rt, "delivery of "+d.ID, []any{d.Payload, d.Attempt, d.Crashes, d.Fence, d.Due.UnixMicro()},
			[]any{t.task.Payload, t.failures + 1, t.crashes, t.fence, t.due.lo})
		if at := d.Popped.UnixMicro(); at < now.lo || at > now.hi || d.Popped.Before(d.Due) {
			rt.Fatalf("%s, due at %v, was popped at %v", d.ID, d.Due, d.Popped)
		}
	}
	s.known = append(s.known, got...)
}

// rise gives newly leased tasks the fence that the pop has taken.
func (s *machine) rise(rt *rapid.T, leased []string) {
	fence, err := s.Get(rt.Context(), s.key("fence")).Uint64()
	check(rt, err)
	if fence <= s.m.fence {
		rt.Fatalf("fence %d after %d", fence, s.m.fence)
	}
	s.m.fence = fence
	for _, id := range leased {
		s.m.tasks[id].fence = fence
		if id == s.m.suspect && s.m.tried == 0 {
			s.m.tried = fence
		}
	}
}

// drawKnown draws some of the deliveries received so far, held or not.
func (s *machine) drawKnown(rt *rapid.T) []*duly.Delivery {
	if len(s.known) == 0 {
		rt.Skip("nothing was popped")
	}
	return rapid.SliceOfN(rapid.SampledFrom(s.known), 1, 4).Draw(rt, "deliveries")
}

func (s *machine) settle(rt *rapid.T) {
	actions := rapid.SampledFrom([]duly.Action{duly.Acked, duly.Dropped, duly.Retried, duly.Released, duly.Buried, duly.Repeated})
	var settlements []duly.Settlement
	for _, d := range s.drawKnown(rt) {
		how := duly.Settlement{
			Delivery: d, Action: actions.Draw(rt, "action"), Err: errors.New("test"),
			At:     d.Popped.Add(time.Duration(rapid.IntRange(0, 2).Draw(rt, "ahead"))*time.Hour + 15*time.Minute),
			In:     time.Duration(rapid.IntRange(0, 2).Draw(rt, "hours")) * time.Hour,
			Result: rapid.SampledFrom([][]byte{nil, []byte(`{"n":1}`)}).Draw(rt, "result"),
		}
		if how.Action == duly.Repeated && rapid.Bool().Draw(rt, "done") {
			how.Err = nil
		}
		settlements = append(settlements, how)
	}
	var lost []*duly.Delivery
	now := s.during(rt, func() (err error) {
		lost, err = s.q.Settle(rt.Context(), settlements)
		return err
	})
	var want []*duly.Delivery
	for _, settlement := range settlements {
		if !s.m.settle(settlement, now) {
			want = append(want, settlement.Delivery)
		}
	}
	if len(want) < len(settlements) {
		s.m.forget(now)
	}
	same(rt, "lost to settle", ids(lost), ids(want))
}

func (s *machine) extend(rt *rapid.T) {
	deliveries := s.drawKnown(rt)
	var lost, cancelled []*duly.Delivery
	now := s.during(rt, func() (err error) {
		lost, cancelled, err = s.q.Extend(rt.Context(), deliveries, 2*machineLease)
		return err
	})
	var want, wantCancelled []*duly.Delivery
	for _, d := range deliveries {
		if !s.m.extend(d, now, 2*machineLease) {
			want = append(want, d)
		} else if s.m.tasks[d.ID].cancelled {
			wantCancelled = append(wantCancelled, d)
		}
	}
	same(rt, "lost to extend", ids(lost), ids(want))
	same(rt, "cancelled, says extend", ids(cancelled), ids(wantCancelled))
}

func (s *machine) cancel(rt *rapid.T) {
	id := machineIDs().Draw(rt, "id")
	var state queue.State
	now := s.during(rt, func() (err error) {
		state, err = s.q.Cancel(rt.Context(), id)
		return err
	})
	same(rt, "cancel", state, s.m.cancel(id, now))
}

func (s *machine) cancelRunning(rt *rapid.T) {
	id := machineIDs().Draw(rt, "id")
	var state queue.State
	now := s.during(rt, func() (err error) {
		state, err = s.q.CancelRunning(rt.Context(), id)
		return err
	})
	same(rt, "cancel running", state, s.m.cancelRunning(id, now))
}

func (s *machine) remove(rt *rapid.T) {
	id := machineIDs().Draw(rt, "id")
	at := int64(12345)
	t := s.m.tasks[id]
	matches := t != nil && rapid.Bool().Draw(rt, "its own due time")
	if matches {
		at = t.due.lo
	}
	ok, err := s.q.Remove(rt.Context(), id, time.UnixMicro(at))
	check(rt, err)
	want := matches && t.state == queue.Due
	same(rt, "removed", ok, want)
	if want {
		s.m.end(id, "cancel: ")
		delete(s.m.tasks, id)
	}
}

func (s *machine) reschedule(rt *rapid.T) {
	id := machineIDs().Draw(rt, "id")
	opt, when := s.drawTime(rt)
	var state queue.State
	now := s.during(rt, func() (err error) {
		state, err = s.q.Reschedule(rt.Context(), id, opt)
		return err
	})
	same(rt, "reschedule", state, s.m.reschedule(id, when(now), now))
}

func (s *machine) revive(rt *rapid.T) {
	some := rapid.SliceOfN(machineIDs(), 1, 3).Draw(rt, "ids")
	n := 0
	now := s.during(rt, func() (err error) {
		n, err = s.q.Revive(rt.Context(), some...)
		return err
	})
	want := 0
	for _, id := range some {
		if s.m.revive(id, now) {
			want++
		}
	}
	same(rt, "revived", n, want)
}

func (s *machine) purge(rt *rapid.T) {
	age := time.Duration(rapid.IntRange(0, 1).Draw(rt, "hours")) * time.Hour
	n := 0
	now := s.during(rt, func() (err error) {
		n, err = s.q.Purge(rt.Context(), age)
		return err
	})
	same(rt, "purged", n, s.m.purge(age, now))
}

// lock takes a lock key as the application does, or gives it back. Its TTL ends at no
// hour of the other times.
func (s *machine) lock(rt *rapid.T) {
	key := rapid.SampledFrom([]string{"key", "key:2"}).Draw(rt, "key")
	const ttl = 100 * time.Minute
	if lease := s.app[key]; lease != nil {
		err := lease.Release(rt.Context())
		if err != nil && !errors.Is(err, lock.ErrExpired) && !errors.Is(err, lock.ErrLost) {
			rt.Fatal(err)
		}
		delete(s.app, key)
		delete(s.m.app, key)
		return
	}
	var lease *lock.Lease
	var err error
	now := s.during(rt, func() error {
		lease, err = s.q.Locker().TryAcquire(rt.Context(), key, ttl)
		return nil
	})
	for id, t := range s.m.tasks {
		if t.state == queue.Leased && t.task.LockKey == key && t.end.lo > now.lo {
			same(rt, "lock of a key of "+id, errors.Is(err, lock.ErrHeld), true)
			return
		}
	}
	check(rt, err)
	s.app[key], s.m.app[key] = lease, now.add(ttl).lo
}

func (s *machine) pause(rt *rapid.T) {
	s.m.paused = !s.m.paused
	if s.m.paused {
		check(rt, s.q.Pause(rt.Context()))
	} else {
		check(rt, s.q.Resume(rt.Context()))
	}
}
