package queue_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

func TestReviveMakesDeadTasksDueWithoutAPast(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "crashed")
		for range 3 {
			r.lapse(t, r.popOne(t, "crashed"))
		}
		equal(t, "popped", ids(r.pop(t, 1)), []string{})
		r.wantState(t, queue.Dead, "crashed")
		r.bury(t, "failed")
		r.bury(t, "left")
		r.enqueue(t, "due", queue.In(time.Hour))
		r.enqueue(t, "leased")
		r.popOne(t, "leased")

		from := r.now(t)
		n, err := r.q.Revive(t.Context(), "failed", "missing", "due", "leased", "crashed", "failed")
		must(t, err)
		equal(t, "revived", n, 2)
		equal(t, "counted", r.stats(t).Counters["revived"], 2)
		r.wantState(t, queue.Dead, "left")
		r.wantState(t, queue.Leased, "leased")
		for _, id := range []string{"failed", "crashed"} {
			info := r.get(t, id)
			between(t, "due", info.At, from, r.now(t))
			equal(t, "task", info, queue.Info{Task: task(id), State: queue.Due, At: info.At})
		}
		equal(t, "popped", ids(r.pop(t, 5)), []string{"crashed", "failed"})
	})
}

func TestReviveOfThousands(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const n = queue.MaxBatch + 5
		_, err := r.q.EnqueueMany(t.Context(), many(n))
		must(t, err)
		r.settle(t, duly.Buried, append(r.pop(t, queue.MaxBatch), r.pop(t, queue.MaxBatch)...)...)
		equal(t, "dead", r.stats(t).Dead, n)
		var all []string
		for _, task := range many(n) {
			all = append(all, task.ID)
		}
		revived, err := r.q.Revive(t.Context(), all...)
		must(t, err)
		equal(t, "revived", revived, n)
		none, err := r.q.Revive(t.Context())
		must(t, err)
		equal(t, "revived of no IDs", none, 0)
	})
}

func TestPurgeRemovesWhatDiedLongerAgoThanTheAge(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	for i := range 4 {
		c.bury(t, fmt.Sprint(i))
		c.step(time.Hour)
	}
	for _, step := range []struct {
		age  time.Duration
		left []string
	}{
		{5 * time.Hour, []string{"0", "1", "2", "3"}},
		{4*time.Hour + time.Microsecond, []string{"0", "1", "2", "3"}},
		{4 * time.Hour, []string{"1", "2", "3"}},
		{150 * time.Minute, []string{"2", "3"}},
		{0, nil},
		{1<<63 - 1, nil},
	} {
		before := c.stats(t).Dead
		n, err := c.q.Purge(t.Context(), step.age)
		must(t, err)
		equal(t, fmt.Sprintf("purged by age %v", step.age), n, before-len(step.left))
		equal(t, "left", sortedKeys(c.snapshot(t).dead), step.left)
	}
	equal(t, "counted", c.stats(t).Counters["purged"], 4)
	c.enqueue(t, "0")
	equal(t, "attempt after a purge", c.popOne(t, "0").Attempt, 1)
}

func TestPurgeOfThousandsLeavesTheLiving(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		const n = queue.MaxBatch + 5
		_, err := r.q.EnqueueMany(t.Context(), many(n))
		must(t, err)
		r.settle(t, duly.Buried, append(r.pop(t, queue.MaxBatch), r.pop(t, queue.MaxBatch)...)...)
		r.enqueue(t, "due", queue.In(time.Hour))
		purged, err := r.q.Purge(t.Context(), 0)
		must(t, err)
		equal(t, "purged", purged, n)
		equal(t, "left", sortedKeys(r.snapshot(t).task), []string{"due"})
	})
}

func TestPurgeTellsWhatItRemovedBeforeAnError(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	members := make([]redis.Z, queue.MaxBatch+1)
	records := make([]any, 0, 2*len(members))
	for i := range members {
		members[i] = redis.Z{Score: 1, Member: fmt.Sprint(i)}
		records = append(records, fmt.Sprint(i), "")
	}
	must(t, r.ZAdd(t.Context(), r.key("dead"), members...).Err())
	must(t, r.HSet(t.Context(), r.key("task"), records...).Err())
	_, err := r.q.Purge(t.Context(), queue.MaxDelay) // loads the script
	must(t, err)
	r.link.onReply(func() error { r.link.lose(); return nil })
	n, err := r.q.Purge(t.Context(), time.Hour)
	wants(t, err, queue.ErrUnknownOutcome)
	equal(t, "purged for certain", n, queue.MaxBatch)
	equal(t, "left", len(r.snapshot(t).dead), 0)
}
