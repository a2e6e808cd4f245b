package queue_test

import (
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// fill brings the rig's Redis to its memory limit.
func (r *rig) fill(t *testing.T) {
	t.Helper()
	must(t, r.ConfigSet(t.Context(), "maxmemory-policy", "noeviction").Err())
	must(t, r.ConfigSet(t.Context(), "maxmemory", "1").Err())
	if err := r.Set(t.Context(), "more", "x", 0).Err(); err == nil {
		t.Fatal("Redis is not full")
	}
}

func TestAFullRedisRefusesNewTasksAndDrains(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	const n = 300
	_, err := r.q.EnqueueMany(t.Context(), many(n))
	must(t, err)
	r.fill(t)
	r.unchanged(t, func() {
		receipts, err := r.q.EnqueueMany(t.Context(), []duly.Task{task("new"), task("newer")})
		wants(t, err, queue.ErrFull, receipts[0].Err, receipts[1].Err)
		if errors.Is(err, queue.ErrUnknownOutcome) {
			t.Errorf("the outcome is known: %v", err)
		}
		receipt := r.enqueue(t, "00000")
		equal(t, "a duplicate", receipt.Outcome, queue.Kept)
	})
	for round := 0; ; round++ {
		deliveries := r.pop(t, 50)
		if len(deliveries) == 0 {
			break
		}
		lost, _, err := r.q.Extend(t.Context(), deliveries, time.Hour)
		must(t, err)
		equal(t, "lost", len(lost), 0)
		var settlements []duly.Settlement
		for i, d := range deliveries {
			action := duly.Acked
			if i < len(deliveries)/2 {
				action = []duly.Action{duly.Dropped, duly.Retried, duly.Released, duly.Buried}[(round+i)%4]
			}
			settlements = append(settlements, duly.Settlement{Delivery: d, Action: action, Err: errors.New("test")})
		}
		lost, err = r.q.Settle(t.Context(), settlements)
		must(t, err)
		equal(t, "lost", len(lost), 0)
	}
	_, err = r.q.Purge(t.Context(), 0)
	must(t, err)
	s := r.stats(t)
	equal(t, "left", []int{s.Due, s.Leased, s.Dead}, []int{0, 0, 0})
	equal(t, "records", len(r.snapshot(t).task), 0)
}

func TestAFullRedisStillDoesWhatAddsNothing(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	ctx := t.Context()
	r.bury(t, "dead")
	starts["leased+next"](t, r, r.now(t).Add(time.Hour))
	ds := r.leased(t, "running", "running too")
	r.enqueue(t, "crashed")
	r.lapse(t, r.popOne(t, "crashed"))
	r.enqueue(t, "due", queue.In(time.Hour))
	r.enqueue(t, "moved", queue.In(time.Hour))
	r.fill(t)
	for name, verb := range map[string]func() (any, error){
		"reschedule":                  func() (any, error) { return r.q.Reschedule(ctx, "moved", queue.In(2*time.Hour)) },
		"reschedule of a replacement": func() (any, error) { return r.q.Reschedule(ctx, "x", queue.In(2*time.Hour)) },
		"cancel":                      func() (any, error) { return r.q.Cancel(ctx, "due") },
		"cancel of a replacement":     func() (any, error) { return r.q.Cancel(ctx, "x") },
		"cancel of a run": func() (any, error) {
			_, err := r.q.CancelRunning(ctx, "running")
			must(t, err)
			return r.q.Settle(ctx, []duly.Settlement{{Delivery: ds["running"], Action: duly.Retried}})
		},
		"cancel of another run": func() (any, error) { return r.q.CancelRunning(ctx, "running too") },
		"pop after a crash": func() (any, error) {
			deliveries, _, err := r.q.Pop(ctx, 9, time.Hour)
			equal(t, "popped", len(deliveries) <= 2, true)
			return nil, err
		},
		"revive":    func() (any, error) { return r.q.Revive(ctx, "dead") },
		"stats":     func() (any, error) { return r.q.Stats(ctx) },
		"peek":      func() (any, error) { return r.q.Peek(ctx, 9) },
		"resume":    func() (any, error) { return nil, r.q.Resume(ctx) },
		"no limits": func() (any, error) { return nil, r.q.SetLimits(ctx, queue.Limits{}) },
	} {
		if got, err := verb(); err != nil {
			t.Errorf("%s at the memory limit: %v, %v", name, got, err)
		}
	}
	r.wantState(t, queue.Due, "moved")
	r.wantState(t, queue.Missing, "due", "running")
}

// Replacing a task with a larger one would grow a full Redis without bound, and
// take along what is new in the same batch.
func TestAFullRedisRefusesReplacementsWhole(t *testing.T) {
	t.Parallel()
	for _, start := range []string{"due", "leased", "leased+next", "dead"} {
		t.Run(start, func(t *testing.T) {
			t.Parallel()
			r, _ := onOwnRedis(t)
			starts[start](t, r, r.now(t).Add(time.Hour))
			r.fill(t)
			for i, batch := range [][]duly.Task{{task("x")}, {task("new"), task("x")}, {task("x"), task("new")}} {
				r.unchanged(t, func() {
					_, err := r.q.EnqueueMany(t.Context(), batch, queue.OnConflict(queue.Replace), queue.In(time.Minute))
					if !errors.Is(err, queue.ErrFull) {
						t.Errorf("batch %d: got %v", i, err)
					}
				})
			}
		})
	}
}

// An empty pop at the limit writes nothing, so nothing can be refused.
func TestAFullRedisAnswersAnEmptyPop(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	r.fill(t)
	equal(t, "popped", ids(r.pop(t, 1)), []string{})
}

func TestAFullRedisRepeatsALostPop(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	for i := range 5 {
		r.enqueue(t, strconv.Itoa(i))
	}
	r.fill(t)
	r.link.lose()
	_, _, err := r.q.Pop(t.Context(), 5, time.Hour)
	wants(t, err, queue.ErrUnknownOutcome)
	again := r.pop(t, 3)
	equal(t, "repeated", len(again), 3)
	r.settle(t, duly.Acked, again...)
	rest := r.pop(t, 5)
	equal(t, "rest", len(rest), 2)
	for _, d := range rest {
		equal(t, fmt.Sprintf("crashes of %s", d.ID), d.Crashes, 0)
	}
}
