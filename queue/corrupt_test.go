package queue_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// badRecords are stored bytes that are no record of this version.
var badRecords = map[string]string{
	"empty":             "",
	"version alone":     "\x01",
	"newer version":     "\x03\xa1\x01dtest",
	"no lock key":       "\x02\n\xa1\x01dtest",
	"endless lock key":  "\x02key",
	"key, no record":    "\x02key\n",
	"key, bad record":   "\x02{key}\n\x01",
	"version 0":         "\x00\xa1\x01dtest",
	"JSON":              `{"kind":"test"}`,
	"truncated":         "\x01\xa2\x01dtest\x02Lpayload",
	"trailing bytes":    "\x01\xa1\x01dtest\x00",
	"null":              "\x01\xf6",
	"no fields":         "\x01\xa0",
	"empty kind":        "\x01\xa1\x01`",
	"a number":          "\x01\x18\x2a",
	"a list":            "\x01\x81\x01",
	"kind of bytes":     "\x01\xa1\x01Dtest",
	"kind not UTF-8":    "\x01\xa1\x01a\xff",
	"a key twice":       "\x01\xa2\x01dtest\x01dtest",
	"unknown field":     "\x01\xa2\x01dtest\x18\x63\x01",
	"huge length":       "\x01\xa2\x01dtest\x02\x5b\x7f\xff\xff\xff\xff\xff\xff\xff",
	"huge map":          "\x01\xbb\x7f\xff\xff\xff\xff\xff\xff\xff",
	"indefinite length": "\x01\xbf\x01dtest\xff",
	"a tag":             "\x01\xc1\xa1\x01dtest",
	"expired in 1969":   "\x01\xa2\x01dtest\x07\x20",
	"odd expiry":        "\x01\xa2\x01dtest\x08elater",
	"kept for -1 ns":    "\x01\xa2\x01dtest\x0b\x20",
	"deep nesting":      "\x01\xa2\x01dtest\x04" + strings.Repeat("\xa1\x01", 100) + "\x01",
}

func TestACorruptRecordGoesToTheDeadLetterWithItsBytesKeptAndBlocksNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		for what, stored := range badRecords {
			r.enqueue(t, what)
			must(t, r.HSet(t.Context(), r.key("task"), what, stored).Err())
		}
		r.enqueue(t, "good")
		equal(t, "popped", ids(r.pop(t, queue.MaxBatch)), []string{"good"})
		for what, stored := range badRecords {
			info := r.get(t, what)
			equal(t, what, []any{info.State, info.ID, string(info.Raw)}, []any{queue.Dead, what, stored})
			wants(t, info.Corrupt, queue.ErrCorrupt)
			if !strings.HasPrefix(info.LastError, queue.ErrCorrupt.Error()) {
				t.Errorf("%s: the dead letter does not say why: %q", what, info.LastError)
			}
		}
		dead, err := r.q.List(t.Context(), queue.Dead, 0, queue.MaxPage)
		must(t, err)
		equal(t, "dead", len(dead), len(badRecords))

		n, err := r.q.Revive(t.Context(), "newer version", "empty")
		must(t, err)
		equal(t, "revived", n, 2)
		equal(t, "popped", ids(r.pop(t, 9)), []string{})
		equal(t, "bytes", string(r.get(t, "newer version").Raw), badRecords["newer version"])
	})
}

// The burial is a second command of Pop, and must not outlast its context.
func TestADeadlineIsHonouredWhileACorruptRecordIsBuried(t *testing.T) {
	t.Parallel()
	r := onRedis(t)
	for _, id := range []string{"bad", "good"} {
		r.enqueue(t, id)
	}
	must(t, r.HSet(t.Context(), r.key("task"), "bad", "garbage").Err())
	answer, answered := make(chan struct{}), make(chan struct{})
	r.link.onReply(func() error { // to the pop
		r.link.onReply(func() error { // to the settlement
			defer close(answered)
			<-answer
			return nil
		})
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	late := time.AfterFunc(5*time.Second, func() {
		t.Error("Pop has not returned, 5 s after its context ended")
		close(answer)
	})
	deliveries, _, err := r.q.Pop(ctx, 9, time.Hour)
	must(t, err)
	equal(t, "popped", ids(deliveries), []string{"good"})
	if late.Stop() {
		close(answer)
	}
	<-answered
}

func TestACorruptRecordIsReplacedLikeAnyOther(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "x", queue.In(time.Hour))
		must(t, r.HSet(t.Context(), r.key("task"), "x", "garbage").Err())
		info := r.get(t, "x")
		equal(t, "state", info.State, queue.Due)
		wants(t, info.Corrupt, queue.ErrCorrupt)
		receipt := r.enqueue(t, "x", queue.OnConflict(queue.Replace))
		equal(t, "outcome", receipt.Outcome, queue.Replaced)
		r.popOne(t, "x")
	})
}

func TestADueIDWithoutARecordGoesToTheDeadLetter(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		must(t, r.ZAdd(t.Context(), r.key("due"), zAt("lost", 1), zAt("lost too", 2)).Err())
		r.enqueue(t, "good")
		equal(t, "popped", ids(r.pop(t, 9)), []string{"good"})
		r.wantState(t, queue.Dead, "lost", "lost too")
		equal(t, "buried", r.stats(t).Counters["buried"], 2)
		receipt := r.enqueue(t, "lost", queue.OnConflict(queue.Replace))
		equal(t, "receipt", []any{receipt.Outcome, receipt.State}, []any{queue.Replaced, queue.Dead})
		r.popOne(t, "lost")
	})
}

// miniredis is left out: its Lua reads no infinity.
func TestForeignDueScores(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"redis", "cluster"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, share(t, kind))
			ctx := t.Context()
			ready := map[string]float64{
				"-inf": math.Inf(-1), "-1": -1, "-0": math.Copysign(0, -1), "-0.25": -0.25, "0": 0, "0.25": 0.25,
				"0.75": 0.75, "1.5": 1.5, "-1e300": -1e300, "fraction": float64(r.now(t).UnixMicro()-2) + 0.25,
			}
			later := map[string]float64{"inf": math.Inf(1), "1e300": 1e300, "2^53": 1 << 53, "2^60": 1 << 60}
			for _, scores := range []map[string]float64{ready, later} {
				for id, score := range scores {
					r.enqueue(t, id, queue.In(time.Hour))
					must(t, r.ZAdd(ctx, r.key("due"), zAt(id, score)).Err())
				}
			}
			_, err := r.q.Peek(ctx, queue.MaxPage)
			must(t, err)
			r.stats(t)
			deliveries := r.pop(t, queue.MaxBatch)
			equal(t, "popped", len(deliveries), len(ready))
			for _, d := range deliveries {
				if d.Due.After(d.Popped) || d.Due.Before(time.Unix(0, 0)) {
					t.Errorf("%q is due at %v, popped at %v", d.ID, d.Due, d.Popped)
				}
			}
			lost, _, err := r.q.Extend(ctx, deliveries, time.Hour)
			must(t, err)
			equal(t, "lost to extend", ids(lost), []string{})
			r.settle(t, duly.Released, deliveries...)
			deliveries = r.pop(t, queue.MaxBatch)
			r.lapse(t, deliveries...)
			deliveries = r.pop(t, queue.MaxBatch)
			equal(t, "popped after a crash", len(deliveries), len(ready))
			r.settle(t, duly.Acked, deliveries...)
			for id := range later {
				equal(t, "receipt of "+id, r.enqueue(t, id).Outcome, queue.Kept)
				_, err := r.q.Reschedule(ctx, id, queue.In(0))
				must(t, err)
			}
			equal(t, "popped", len(r.pop(t, 9)), len(later))
		})
	}
}

// Tools that write scores in ms or ns are the commonest strangers.
func TestAForeignScoreFarAheadNeitherHurriesPopsNorWinsOverAnEarlierTask(t *testing.T) {
	t.Parallel()
	for name, score := range map[string]float64{"ns": 1.763676e18, "2^63": 1 << 63, "inf": math.Inf(1)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, share(t, "redis"))
			r.enqueue(t, "x", queue.In(time.Hour))
			must(t, r.ZAdd(t.Context(), r.key("due"), zAt("x", score)).Err())
			_, wait, err := r.q.Pop(t.Context(), 1, time.Hour)
			must(t, err)
			equal(t, "wait", wait, 24*time.Hour)
			equal(t, "earliest", r.enqueue(t, "x", queue.OnConflict(queue.Earliest)).Outcome, queue.Replaced)
			r.popOne(t, "x")
		})
	}
}

func TestForeignMembersOfTheLeasedSetAreDroppedWhenTheyEnd(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		r.enqueue(t, "x")
		held := r.popOne(t, "x")
		foreign := []string{"x", "", ":", "1:x", "a:b:x", "1:-2:x", "-1:2:x", "1:" + strings.Repeat("9", 400) + ":x", "\x00\xff"}
		for _, member := range foreign {
			must(t, r.ZAdd(t.Context(), r.key("leased"), zAt(member, 1)).Err())
		}
		_, err := r.q.List(t.Context(), queue.Leased, 0, 99)
		must(t, err)
		r.enqueue(t, "y")
		r.popOne(t, "y")
		equal(t, "leased", len(r.snapshot(t).leased), 2)
		r.settle(t, duly.Acked, held)
	})
}

func TestForeignValuesInTheHashesStopNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		huge := strings.Repeat("9", 400) + ":x"
		values := []string{"", "x", huge, ":", "-1:x", "99999999999999999999:x", "9223372036854775807:", "1", "1.5:\xff", huge}
		for i, value := range values {
			id := fmt.Sprint(i)
			r.enqueue(t, id)
			for _, hash := range []string{"fail", "crash"} {
				must(t, r.HSet(ctx, r.key(hash), id, value).Err())
			}
		}
		deliveries := r.pop(t, 99)
		equal(t, "popped", len(deliveries), len(values))
		for i, value := range values {
			must(t, r.HSet(ctx, r.key("next"), fmt.Sprint(i), value).Err())
			if attempt := deliveries[i].Attempt; attempt < 1 {
				t.Errorf("attempt %d from failures %q", attempt, value)
			}
		}
		half := len(deliveries) / 2
		r.lapse(t, deliveries[:half]...)
		_, _, err := r.q.Pop(ctx, 99, time.Hour)
		must(t, err)
		r.settle(t, duly.Retried, deliveries[half:]...)
		for i := range values {
			state := r.get(t, fmt.Sprint(i)).State
			if state == queue.Missing {
				t.Errorf("the task with %q is gone", values[i])
			}
			_, err := r.q.Reschedule(ctx, fmt.Sprint(i), queue.In(time.Hour))
			must(t, err)
		}
		must(t, r.Del(ctx, r.key("next")).Err())
	})
}
