package queue_test

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/dulyhq/duly/queue"
)

// time lets time pass: on a clock that can be moved it moves, on a real Redis
// one lease is made to have ended. One, since of several the later would come
// back at times between which a test would have to wait.
func (s *machine) time(rt *rapid.T) {
	if s.step != nil && rapid.Bool().Draw(rt, "step") {
		s.step(rapid.SampledFrom([]time.Duration{
			time.Microsecond, 100 * time.Millisecond, 59 * time.Minute, time.Hour, 3 * time.Hour,
		}).Draw(rt, "by"))
		return
	}
	for id, t := range s.m.tasks {
		if t.state == queue.Leased && t.end.lo == 1 && s.step == nil {
			rt.Skip("a lease has run out already, of ", id)
		}
	}
	d := s.drawKnown(rt)[0]
	t := s.m.held(d)
	if t == nil {
		rt.Skip("not held")
	}
	check(rt, s.ZAddXX(rt.Context(), s.key("leased"), zAt(t.member(d.ID), 1)).Err())
	key := s.key("lock:" + d.LockKey)
	if value, _ := s.Get(rt.Context(), key).Result(); strings.HasPrefix(value, fmt.Sprintf("%d:task ", d.Fence)) {
		check(rt, s.Del(rt.Context(), key).Err()) // it ends with the lease
	}
	t.end = span{1, 1}
}

// compare fails the test unless Redis holds what the model does, and makes the
// model's times exact.
func (s *machine) compare(rt *rapid.T) {
	held, err := s.read(rt.Context())
	check(rt, err)
	if broken := held.broken(); broken != nil {
		rt.Fatalf("invariants broken: %v", broken)
	}
	want := snapshot{
		task: map[string]string{}, next: map[string]string{}, fail: map[string]string{}, crash: map[string]string{},
		result: map[string]string{}, progress: map[string]string{},
	}
	waiting := maps.Clone(held.due)
	maps.Copy(waiting, held.parked)
	counts := make(map[queue.State]int)
	for id, t := range s.m.tasks {
		counts[t.state]++
		want.task[id] = encoded(rt, t)
		switch t.state {
		case queue.Due:
			narrow(rt, "due time of "+id, &t.due, waiting, id)
		case queue.Leased:
			narrow(rt, "lease end of "+id, &t.end, held.leased, t.member(id))
		case queue.Dead:
			narrow(rt, "death of "+id, &t.end, held.dead, id)
		case queue.Done:
			narrow(rt, "end of the record of "+id, &t.end, held.done, id)
		}
		if t.result != "" {
			want.result[id] = t.result
		}
		if t.progress != "" {
			want.progress[id] = t.progress
		}
		if t.failures > 0 || t.lapsed {
			want.fail[id] = strconv.Itoa(t.failures) + ":test"
		}
		if t.crashes > 0 {
			want.crash[id] = strconv.Itoa(t.crashes)
		}
		if t.last {
			want.next[id] = "-"
		}
		if t.next != nil {
			digits, _, _ := strings.Cut(held.next[id], ":")
			at, _ := strconv.ParseInt(digits, 10, 64)
			narrow(rt, "due time of what follows "+id, &t.next.due, map[string]int64{id: at}, id)
			want.next[id] = digits + ":" + encoded(rt, t.next)
		}
	}
	same(rt, "sizes", []int{len(waiting), len(held.leased), len(held.dead), len(held.done)},
		[]int{counts[queue.Due], counts[queue.Leased], counts[queue.Dead], counts[queue.Done]})
	same(rt, "records", held.task, want.task)
	same(rt, "replacements", held.next, want.next)
	same(rt, "failures", held.fail, want.fail)
	same(rt, "crashes", held.crash, want.crash)
	same(rt, "results", held.result, want.result)
	same(rt, "progress", held.progress, want.progress)
	s.compareWaits(rt)
	stats, err := s.q.Stats(rt.Context())
	check(rt, err)
	same(rt, "stats", []any{stats.Due, stats.Leased, stats.Dead, stats.Paused},
		[]any{counts[queue.Due], counts[queue.Leased], counts[queue.Dead], s.m.paused})
}

func encoded(rt *rapid.T, t *modelTask) string {
	record, err := queue.EncodeRecord(&t.task)
	check(rt, err)
	return string(record)
}

// narrow replaces a span by the time that Redis holds, which must lie within.
func narrow(rt *rapid.T, what string, s *span, held map[string]int64, member string) {
	at, ok := held[member]
	if !ok || at < s.lo || at > s.hi {
		rt.Fatalf("%s: %d (%v), want %d to %d", what, at, ok, s.lo, s.hi)
	}
	*s = span{at, at}
}
