package queue_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// wrong are values of a type that the keys of a queue do not have.
var wrong = map[string]func(r *rig, t *testing.T, key string) error{
	"due": plantString, "leased": plantString, "dead": plantHash, "task": plantString, "next": plantZset,
	"fail": plantString, "crash": plantZset, "fence": plantHash, "conf": plantString, "stat": plantZset, "lock": plantZset,
	"trial": plantHash, "parked": plantString, "turns": plantHash, "blocked": plantString, "cancel": plantString,
	"done": plantHash, "result": plantZset, "progress": plantZset, "wanted": plantHash, "ended": plantZset,
}

func plantString(r *rig, t *testing.T, key string) error {
	return r.Set(t.Context(), key, "x", 0).Err()
}

func plantZset(r *rig, t *testing.T, key string) error {
	return r.ZAdd(t.Context(), key, zAt("x", 1)).Err()
}

func plantHash(r *rig, t *testing.T, key string) error {
	return r.HSet(t.Context(), key, "x", "x").Err()
}

// raw is what every key of the queue holds, of whatever type.
func (r *rig) raw(t *testing.T) string {
	t.Helper()
	ctx, pipe := t.Context(), r.Pipeline()
	for _, name := range sortedKeys(wrong) { // two of the three fail, with the key's type
		pipe.Get(ctx, r.key(name))
		pipe.ZRangeWithScores(ctx, r.key(name), 0, -1)
		pipe.HGetAll(ctx, r.key(name))
	}
	commands, _ := pipe.Exec(ctx)
	return fmt.Sprint(commands)
}

// verbs returns every verb, on tasks in each state that it makes, so that each
// has something to do.
func (r *rig) verbs(t *testing.T) (names []string, verbs map[string]func() error) {
	t.Helper()
	ctx := t.Context()
	for _, id := range []string{"dead 1", "dead 2", "dead 3"} {
		r.bury(t, id)
	}
	var kept *duly.Delivery
	for _, id := range []string{"kept before", "kept"} {
		task := task(id)
		task.Retain = time.Hour
		_, err := r.q.Enqueue(ctx, task)
		must(t, err)
		if kept = r.popOne(t, id); id == "kept before" {
			must(t, r.q.Progress(ctx, kept, []byte("1")))
			r.settle(t, duly.Acked, kept)
		}
	}
	ds := r.leased(t, "leased", "ack", "retry", "bury", "release", "repeat", "extend", "lapsed", "replaced", "running")
	for _, id := range []string{"recurs", "recurs, cancelled"} {
		r.recur(t, hourly(id, "1"), 0)
		r.popOne(t, id)
	}
	_, err := r.q.CancelRunning(ctx, "recurs, cancelled")
	must(t, err)
	r.enqueue(t, "replaced", queue.OnConflict(queue.Replace))
	r.enqueue(t, "running", queue.OnConflict(queue.Replace))
	r.lapse(t, ds["lapsed"])
	for _, id := range []string{"due 1", "due 2", "due 3"} {
		r.enqueue(t, id, queue.In(time.Hour))
	}
	r.enqueue(t, "ready")
	verbs = make(map[string]func() error)
	add := func(name string, verb func() error) {
		names, verbs[name] = append(names, name), verb
	}
	for id, conflict := range map[string]queue.Conflict{"new": queue.Keep, "due 1": queue.Replace, "leased": queue.Replace, "dead 1": queue.Replace, "due 2": queue.Earliest} {
		add(fmt.Sprintf("enqueue %s %s", conflict, id), func() error {
			_, err := r.q.EnqueueMany(ctx, []duly.Task{task("fresh " + id), task(id)}, queue.OnConflict(conflict))
			return err
		})
	}
	add("extend", func() error { _, _, err := r.q.Extend(ctx, []*duly.Delivery{ds["extend"]}, time.Hour); return err })
	for id, action := range map[string]duly.Action{"ack": duly.Acked, "retry": duly.Retried, "bury": duly.Buried, "release": duly.Released, "repeat": duly.Repeated, "replaced": duly.Acked} {
		add("settle "+id, func() error {
			_, err := r.q.Settle(ctx, []duly.Settlement{{Delivery: ds[id], Action: action, At: ds[id].Popped.Add(time.Hour), Err: errors.New("test")}})
			return err
		})
	}
	add("wait", func() error { _, err := r.q.Wait(ctx, "dead 3"); return err })
	add("pop", func() error { _, _, err := r.q.Pop(ctx, 2, time.Hour); return err })
	add("reschedule", func() error { _, err := r.q.Reschedule(ctx, "due 3", queue.In(time.Minute)); return err })
	add("cancel", func() error { _, err := r.q.Cancel(ctx, "due 3"); return err })
	add("cancel a run", func() error { _, err := r.q.Cancel(ctx, "recurs"); return err })
	add("recur", func() error { _, err := r.q.Recur(ctx, hourly("due 1", "1"), in(time.Hour)); return err })
	add("recur, cancelled", func() error { _, err := r.q.Recur(ctx, hourly("recurs, cancelled", "1"), in(time.Hour)); return err })
	add("cancel running", func() error { _, err := r.q.CancelRunning(ctx, "running"); return err })
	add("cancel running, due", func() error { _, err := r.q.CancelRunning(ctx, "due 2"); return err })
	add("settle cancelled", func() error {
		_, err := r.q.Settle(ctx, []duly.Settlement{{Delivery: ds["running"], Action: duly.Retried}})
		return err
	})
	add("revive", func() error { _, err := r.q.Revive(ctx, "dead 2"); return err })
	add("purge", func() error { _, err := r.q.Purge(ctx, 0); return err })
	add("pause", func() error { return r.q.Pause(ctx) })
	add("resume", func() error { return r.q.Resume(ctx) })
	add("limit", func() error { return r.q.SetLimits(ctx, queue.Limits{Running: 100, Rate: 1000}) })
	add("no limits", func() error { return r.q.SetLimits(ctx, queue.Limits{}) })
	add("settle kept", func() error {
		_, err := r.q.Settle(ctx, []duly.Settlement{{Delivery: kept, Action: duly.Acked, Result: []byte("1")}})
		return err
	})
	add("progress", func() error { return r.q.Progress(ctx, ds["extend"], []byte("1")) })
	add("enqueue done", func() error { _, err := r.q.Enqueue(ctx, task("kept before")); return err })
	add("get", func() error { _, err := r.q.Get(ctx, "due 2"); return err })
	add("peek", func() error { _, err := r.q.Peek(ctx, 9); return err })
	add("stats", func() error { _, err := r.q.Stats(ctx); return err })
	return names, verbs
}

func TestAKeyOfAnotherTypeIsAClearErrorAndNothingIsWrittenHalf(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, main *rig) {
		for name, plant := range wrong {
			t.Run(name, func(t *testing.T) {
				r := main.another(t, queue.Config{})
				names, verbs := r.verbs(t)
				key := r.key(name)
				kept := r.Exists(t.Context(), key).Val() == 1
				if kept {
					must(t, r.Rename(t.Context(), key, key+":kept").Err())
				}
				must(t, plant(r, t, key))
				failed, before := 0, r.raw(t)
				for _, verb := range names {
					err := verbs[verb]()
					if err == nil {
						before = r.raw(t)
						continue
					}
					failed++
					wants(t, err, queue.ErrWrongType)
					if after := r.raw(t); after != before {
						t.Errorf("%s failed half-way\nfrom %s\nto   %s", verb, before, after)
					}
				}
				if failed == 0 || name == "stat" && failed > 1 {
					t.Errorf("%d verbs failed", failed)
				}
				must(t, r.Del(t.Context(), key).Err())
				if kept {
					must(t, r.Rename(t.Context(), key+":kept", key).Err())
				}
			})
		}
	})
}

func TestAPopKeyOfAnotherTypeIsAClearError(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.leased(t, "x")
		r.enqueue(t, "y")
		keys := r.keysLike(t, "pop:")
		equal(t, "pop keys", len(keys), 1)
		must(t, r.Del(t.Context(), keys[0]).Err())
		must(t, plantHash(r, t, keys[0]))
		r.unchanged(t, func() {
			_, _, err := r.q.Pop(t.Context(), 1, time.Hour)
			wants(t, err, queue.ErrWrongType)
		})
		must(t, r.Del(t.Context(), keys[0]).Err())
		must(t, r.Set(t.Context(), keys[0], "garbage", 0).Err())
		r.popOne(t, "y")
	})
}

// keysLike returns the queue's keys that begin like one.
func (r *rig) keysLike(t *testing.T, what string) []string {
	t.Helper()
	all, err := r.Keys(t.Context(), "*").Result() // a queue's name may hold wildcards
	must(t, err)
	return slices.DeleteFunc(all, func(key string) bool { return !strings.HasPrefix(key, r.key(what)) })
}
