package worker_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/queue"
)

// A simLease is a leased member.
type simLease struct {
	fence    uint64
	due, end int64
}

// A snapshot is what Redis holds of the queue of a simulation.
type snapshot struct {
	due, parked, dead, done    map[string]int64
	leases                     map[string]simLease
	tasks, turns               []string
	blocked                    map[string]int64
	next, fail, crash, cancels map[string]string
	wrong                      []string
}

func (s *sim) snapshot() *snapshot {
	key := func(what string) string { return "duly:{sim}:" + what }
	ctx := context.Background()
	pipe := s.observer.Pipeline()
	sets := make(map[string]*redis.ZSliceCmd)
	for _, what := range []string{"due", "parked", "leased", "dead", "done", "turns", "blocked"} {
		sets[what] = pipe.ZRangeWithScores(ctx, key(what), 0, -1)
	}
	tasks := pipe.HKeys(ctx, key("task"))
	hashes := make(map[string]*redis.MapStringStringCmd)
	for _, what := range []string{"next", "fail", "crash", "cancel"} {
		hashes[what] = pipe.HGetAll(ctx, key(what))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		s.errorf("the observer: %v", err)
	}
	snap := &snapshot{leases: make(map[string]simLease), tasks: tasks.Val()}
	scores := func(what string) map[string]int64 {
		all := make(map[string]int64)
		for _, z := range sets[what].Val() {
			all[fmt.Sprint(z.Member)] = int64(z.Score)
		}
		return all
	}
	snap.due, snap.parked, snap.dead, snap.done = scores("due"), scores("parked"), scores("dead"), scores("done")
	snap.blocked, snap.turns = scores("blocked"), slices.Collect(maps.Keys(scores("turns")))
	snap.next, snap.fail, snap.crash, snap.cancels = hashes["next"].Val(), hashes["fail"].Val(), hashes["crash"].Val(), hashes["cancel"].Val()
	for member, end := range scores("leased") {
		snap.lease(member, end)
	}
	slices.Sort(snap.tasks)
	return snap
}

// lease reads <fence>:<due>:<id>, or <fence>:<due>@<lock key>\n<id>.
func (snap *snapshot) lease(member string, end int64) {
	fence, rest, _ := strings.Cut(member, ":")
	due, id, keyed := strings.Cut(rest, "@")
	if keyed {
		_, id, _ = strings.Cut(id, "\n")
	} else {
		due, id, _ = strings.Cut(rest, ":")
	}
	if _, twice := snap.leases[id]; twice {
		snap.wrong = append(snap.wrong, id+" is leased twice")
	}
	snap.leases[id] = simLease{fence: number[uint64](fence), due: number[int64](due), end: end}
}

func number[N int64 | uint64 | int](digits string) N {
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil {
		return 0
	}
	return N(n)
}

// places are where an ID is, and the score there.
func (snap *snapshot) places(id string) (found []string) {
	for state, set := range map[queue.State]map[string]int64{
		queue.Due: snap.due, queue.Parked: snap.parked, queue.Dead: snap.dead, queue.Done: snap.done,
	} {
		if at, ok := set[id]; ok {
			found = append(found, fmt.Sprintf("%s %d", state, at))
		}
	}
	if l, ok := snap.leases[id]; ok {
		found = append(found, fmt.Sprintf("%s %d %d %d", queue.Leased, l.end, l.fence, l.due))
	}
	return found
}

// compare tells how Redis differs from the model; "" if it does not.
func (m *simModel) compare(snap *snapshot, now int64) string {
	c := simComparison{snap: snap, wrong: slices.Clone(snap.wrong)}
	for id, t := range m.tasks { // a record that was kept long enough may be gone
		if _, there := snap.done[id]; t.state == queue.Done && t.end <= now && !there {
			delete(m.tasks, id)
		}
	}
	if ids := slices.Sorted(maps.Keys(m.tasks)); !slices.Equal(ids, snap.tasks) {
		c.add("records of %v, want %v", snap.tasks, ids)
	}
	for id, t := range m.tasks {
		c.place(id, t)
		c.marks(id, t)
	}
	if len(snap.turns) != c.turns {
		c.add("%d turns of %d parked tasks: %q", len(snap.turns), c.turns, snap.turns)
	}
	n := len(snap.due) + len(snap.parked) + len(snap.leases) + len(snap.dead) + len(snap.done)
	if n != len(m.tasks) {
		c.add("%d IDs in the sets, want %d", n, len(m.tasks))
	}
	for what, hash := range map[string]map[string]string{"next": snap.next, "fail": snap.fail, "crash": snap.crash, "cancel": snap.cancels} {
		for id := range hash {
			if m.tasks[id] == nil {
				c.add("%s of %s is left", what, id)
			}
		}
	}
	return strings.Join(c.wrong, "; ")
}

// A simComparison collects how a snapshot differs.
type simComparison struct {
	snap  *snapshot
	turns int // of what is parked
	wrong []string
}

func (c *simComparison) add(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// place compares where a task is, which is in one set. One that the model has as due
// may be parked if it has a lock key.
func (c *simComparison) place(id string, t *simTask) {
	want := fmt.Sprintf("%s %d", t.state, t.end)
	switch t.state {
	case queue.Due:
		want = fmt.Sprintf("%s %d", t.state, t.due)
		if _, parked := c.snap.parked[id]; parked && t.LockKey != "" {
			c.turns++
			want = fmt.Sprintf("%s %d", queue.Parked, t.due)
			if turn := fmt.Sprintf("%s\n%016d\n%s", t.LockKey, t.due, id); !slices.Contains(c.snap.turns, turn) {
				c.add("%s is parked without its turn %q: %q", id, turn, c.snap.turns)
			}
			if _, looked := c.snap.blocked[t.LockKey]; !looked {
				c.add("%s is parked, and nobody looks at its key", id)
			}
		}
	case queue.Leased:
		want += fmt.Sprintf(" %d %d", t.fence, t.due)
	}
	if got := c.snap.places(id); len(got) != 1 || got[0] != want {
		c.add("%s is %q, want %q", id, got, want)
	}
}

// marks compares what is noted of a task.
func (c *simComparison) marks(id string, t *simTask) {
	failures, _, _ := strings.Cut(c.snap.fail[id], ":")
	if number[int](failures) != t.failures || number[int](c.snap.crash[id]) != t.crashes {
		c.add("%s has failures %q and crashes %q, want %d and %d", id, failures, c.snap.crash[id], t.failures, t.crashes)
	}
	waits := ""
	if t.next != nil {
		waits = strconv.FormatInt(t.next.due, 10)
	}
	if due, _, _ := strings.Cut(c.snap.next[id], ":"); due != waits {
		c.add("%s is followed by one due at %q, want %q", id, due, waits)
	}
	if mark := number[uint64](c.snap.cancels[id]); t.cancelled != (mark >= t.fence && mark > 0) {
		c.add("%s with fence %d has the mark %d, cancelled is %t", id, t.fence, mark, t.cancelled)
	}
}
