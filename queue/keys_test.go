package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A snapshot is what the keys of a queue hold, as doc.go describes them.
type snapshot struct {
	due, leased, dead, done map[string]int64 // µs
	parked, turns, blocked  map[string]int64 // as well; turns has no times
	task, next, fail, crash map[string]string
	result, progress        map[string]string
	cancel, conf, stat      map[string]string
	fence                   string
}

func (r *rig) snapshot(tb testing.TB) snapshot {
	tb.Helper()
	s, err := r.read(context.Background()) // the test's own has ended when its clean-ups run
	must(tb, err)
	return s
}

func (r *rig) read(ctx context.Context) (snapshot, error) {
	pipe := r.Pipeline() // a transaction is refused at the memory limit
	zset := func(name string) *redis.ZSliceCmd { return pipe.ZRangeWithScores(ctx, r.key(name), 0, -1) }
	hash := func(name string) *redis.MapStringStringCmd { return pipe.HGetAll(ctx, r.key(name)) }
	due, leased, dead, done := zset("due"), zset("leased"), zset("dead"), zset("done")
	parked, turns, blocked := zset("parked"), zset("turns"), zset("blocked")
	result, progress := hash("result"), hash("progress")
	task, next, fail, crash := hash("task"), hash("next"), hash("fail"), hash("crash")
	conf, stat, fence := hash("conf"), hash("stat"), pipe.Get(ctx, r.key("fence"))
	cancel := hash("cancel")
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return snapshot{}, err
	}
	return snapshot{
		due: scores(due.Val()), leased: scores(leased.Val()), dead: scores(dead.Val()),
		parked: scores(parked.Val()), turns: scores(turns.Val()), blocked: scores(blocked.Val()),
		done: scores(done.Val()), result: result.Val(), progress: progress.Val(),
		task: task.Val(), next: next.Val(), fail: fail.Val(), crash: crash.Val(),
		cancel: cancel.Val(), conf: conf.Val(), stat: stat.Val(), fence: fence.Val(),
	}, nil
}

func scores(zs []redis.Z) map[string]int64 {
	set := make(map[string]int64, len(zs))
	for _, z := range zs {
		set[fmt.Sprint(z.Member)] = int64(z.Score)
	}
	return set
}

var leasedMember = regexp.MustCompile(`(?s)^\d+:\d+(?::|@[^\n]*\n)(.*)$`)

// broken returns what of the invariants does not hold: an ID is in exactly one
// of due, parked, leased, dead and done; its record exists exactly then; failures,
// crashes, progress, results, replacements and cancellations exist only for such IDs,
// results only for done ones, the last two only for leased ones. A parked one has its
// turn, by the lock key in its record, which is looked at.
func (s snapshot) broken() []string {
	var broken []string
	places := make(map[string][]string)
	for id := range s.due {
		places[id] = append(places[id], "due")
	}
	for id := range s.dead {
		places[id] = append(places[id], "dead")
	}
	for id := range s.done {
		places[id] = append(places[id], "done")
	}
	turns := maps.Clone(s.turns)
	for id, due := range s.parked {
		places[id] = append(places[id], "parked")
		key, _, _ := strings.Cut(strings.TrimPrefix(s.task[id], "\x02"), "\n")
		turn := fmt.Sprintf("%s\n%016d\n%s", key, due, id)
		_, looked := s.blocked[key]
		if _, has := turns[turn]; !has || !looked {
			broken = append(broken, fmt.Sprintf("%q is parked, with turn: %v, looked at: %v", id, has, looked))
		}
		delete(turns, turn)
	}
	for turn := range turns {
		broken = append(broken, fmt.Sprintf("turn %q is of no parked task", turn))
	}
	leased := make(map[string]bool)
	for member := range s.leased {
		match := leasedMember.FindStringSubmatch(member)
		if match == nil {
			broken = append(broken, fmt.Sprintf("leased member %q", member))
			continue
		}
		leased[match[1]] = true
		places[match[1]] = append(places[match[1]], "leased")
	}
	for id, in := range places {
		if len(in) > 1 {
			broken = append(broken, fmt.Sprintf("%q is in %v", id, in))
		}
		if _, ok := s.task[id]; !ok {
			broken = append(broken, fmt.Sprintf("%q is %s without a record", id, in[0]))
		}
	}
	for id := range s.task {
		if places[id] == nil {
			broken = append(broken, fmt.Sprintf("%q has a record and is nowhere", id))
		}
	}
	for id := range s.next {
		if !leased[id] {
			broken = append(broken, fmt.Sprintf("%q has a replacement and is not leased", id))
		}
	}
	for id := range s.cancel {
		if !leased[id] {
			broken = append(broken, fmt.Sprintf("%q is cancelled and not leased", id))
		}
	}
	for what, hash := range map[string]map[string]string{"failures": s.fail, "crashes": s.crash, "progress": s.progress} {
		for id := range hash {
			if places[id] == nil {
				broken = append(broken, fmt.Sprintf("%q has %s and is nowhere", id, what))
			}
		}
	}
	for id := range s.result {
		if _, ok := s.done[id]; !ok {
			broken = append(broken, fmt.Sprintf("%q has a result and is not done", id))
		}
	}
	return broken
}

// check fails the test if the queue's keys break an invariant.
func (r *rig) check(tb testing.TB) {
	tb.Helper()
	for _, broken := range r.snapshot(tb).broken() {
		tb.Errorf("invariant broken: %s", broken)
	}
}

// unchanged fails the test unless f leaves the queue's keys as they are.
func (r *rig) unchanged(tb testing.TB, f func()) {
	tb.Helper()
	before := r.snapshot(tb)
	f()
	if after := r.snapshot(tb); !reflect.DeepEqual(before, after) {
		tb.Fatalf("keys changed\nfrom %+v\nto   %+v", before, after)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// TestTheCheckerSeesBrokenInvariants plants each breach, for a checker that sees
// nothing proves nothing.
func TestTheCheckerSeesBrokenInvariants(t *testing.T) {
	t.Parallel()
	zset, hash := map[string]int64{"a": 1}, map[string]string{"a": "x"}
	keyed, turn := map[string]string{"a": "\x02k\nx"}, map[string]int64{"k\n0000000000000001\na": 0}
	good := []snapshot{
		{},
		{due: zset, task: hash, fail: hash, crash: hash},
		{dead: zset, task: hash, fail: hash, progress: hash},
		{done: zset, task: hash, result: hash, progress: hash},
		{leased: map[string]int64{"1:2:a": 1}, task: hash, next: hash, cancel: hash},
		{leased: map[string]int64{"1:2:a:\nb": 1}, task: map[string]string{"a:\nb": "x"}},
		{leased: map[string]int64{"1:2@k:\na": 1}, task: hash, next: hash},
		{parked: zset, task: keyed, turns: turn, blocked: map[string]int64{"k": 1}},
	}
	for i, s := range good {
		if broken := s.broken(); broken != nil {
			t.Errorf("good %d: %v", i, broken)
		}
	}
	bad := []snapshot{
		{due: zset},
		{task: hash},
		{due: zset, dead: zset, task: hash},
		{due: zset, leased: map[string]int64{"1:2:a": 1}, task: hash},
		{leased: map[string]int64{"1:2:a": 1, "2:2:a": 1}, task: hash},
		{leased: map[string]int64{"a": 1}, task: hash},
		{due: zset, task: hash, next: hash},
		{due: zset, task: hash, cancel: hash},
		{cancel: hash},
		{done: zset},
		{done: zset, due: zset, task: hash},
		{due: zset, task: hash, result: hash},
		{progress: hash},
		{fail: hash},
		{crash: hash},
		{parked: zset, task: keyed, blocked: map[string]int64{"k": 1}},
		{parked: zset, task: keyed, turns: turn},
		{turns: turn},
		{parked: zset, due: zset, task: keyed, turns: turn, blocked: map[string]int64{"k": 1}},
	}
	for i, s := range bad {
		if s.broken() == nil {
			t.Errorf("bad %d passed: %+v", i, s)
		}
	}
}
