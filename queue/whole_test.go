package queue_test

import (
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// planted is unchanged while a key is of another type.
func (r *rig) planted(t *testing.T, name string, verb func() error) {
	t.Helper()
	key := r.key(name)
	kept := r.Exists(t.Context(), key).Val() == 1
	if kept {
		must(t, r.Rename(t.Context(), key, key+":kept").Err())
	}
	must(t, wrong[name](r, t, key))
	before := r.raw(t)
	wants(t, verb(), queue.ErrWrongType)
	if after := r.raw(t); after != before {
		t.Errorf("failed half-way\nfrom %s\nto   %s", before, after)
	}
	must(t, r.Del(t.Context(), key).Err())
	if kept {
		must(t, r.Rename(t.Context(), key+":kept", key).Err())
	}
}

func TestACrashThatBuriesIsRefusedWhole(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r = r.another(t, queue.Config{MaxCrashes: 1})
		r.enqueue(t, "x")
		r.lapse(t, r.popOne(t, "x"))
		r.planted(t, "dead", func() error { _, _, err := r.q.Pop(t.Context(), 2, time.Hour); return err })
		equal(t, "popped", ids(r.pop(t, 2)), []string{})
		r.wantState(t, queue.Dead, "x")
	})
}

func TestWhatIsDoneToAParkedTaskIsRefusedWhole(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.keyed(t, "key", "a", "b")
		a := r.popOne(t, "a")
		equal(t, "popped", ids(r.pop(t, 2)), []string{})
		for _, name := range []string{"turns", "blocked"} {
			r.planted(t, name, func() error { _, err := r.q.Reschedule(t.Context(), "b", queue.In(time.Hour)); return err })
			r.planted(t, name, func() error { _, err := r.q.Cancel(t.Context(), "b"); return err })
			r.planted(t, name, func() error {
				_, err := r.q.Enqueue(t.Context(), task("b"), queue.OnConflict(queue.Replace))
				return err
			})
		}
		r.wantState(t, queue.Parked, "b")
		r.settle(t, duly.Acked, a)
		r.settle(t, duly.Acked, r.popOne(t, "b"))
	})
}

func TestAFullRedisCanBePaused(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	r.enqueue(t, "x")
	must(t, r.q.Pause(t.Context()))
	r.fill(t)
	must(t, r.q.Pause(t.Context())) // again, or what holds it would be new
	equal(t, "popped", ids(r.pop(t, 1)), []string{})
	must(t, r.q.Resume(t.Context()))
	r.popOne(t, "x")
}

func TestAFullRedisCutsARateThatWasLowered(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	r.limit(t, queue.Limits{Rate: 1, Burst: 50})
	for _, id := range []string{"a", "b", "c"} {
		r.enqueue(t, id)
	}
	equal(t, "popped", len(r.pop(t, 2)), 2)
	r.limit(t, queue.Limits{Rate: 1, Burst: 1})
	r.fill(t)
	_, wait, err := r.q.Pop(t.Context(), 1, time.Hour)
	must(t, err)
	if wait > time.Second {
		t.Errorf("the next is to wait %v, more than one interval", wait)
	}
}
