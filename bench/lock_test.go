package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// The smoke run shows that the suite works, and that its tables have its own
// systems in their order, beside its own peers.
func TestQuickLocks(t *testing.T) {
	needRedis(t)
	out := filepath.Join(t.TempDir(), "latest.jsonl")
	var tables, log bytes.Buffer
	args := []string{"-quick", "-suites", "lock", "-systems", "redsync,redislock,duly", "-out", out}
	if err := run(t.Context(), args, &tables, &log); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	seen := make(map[string]float64)
	for _, rec := range readRecords(t, out) {
		if rec.Suite != "lock" || rec.Value < 0 || rec.Unit == "" || rec.Round != 1 {
			t.Errorf("odd record %+v", rec)
		}
		seen[rec.System+", "+rec.Metric] = rec.Value
	}
	for _, sys := range []string{"duly", "redislock", "redsync"} {
		for _, metric := range []string{
			"free, acquire + release, p50", "free, Go allocations a pair", "32 waiters, handovers",
			"32 waiters, wait max", "32 waiters, commands a handover", "70 % load, wait p99",
		} {
			if seen[sys+", "+metric] <= 0 {
				t.Errorf("%q of %s is %v", metric, sys, seen[sys+", "+metric])
			}
		}
	}
	if got := seen["redislock, free, commands a pair"]; got != 2 {
		t.Errorf("redislock sends %v commands a pair, not a script to obtain and one to release", got)
	}
	text := tables.String()
	if !strings.Contains(text, "## lock") || !strings.Contains(text, "| × redislock | × redsync |") {
		t.Errorf("no table, or not against the peers:\n%s", text)
	}
	first, second := strings.Index(text, "| duly "), strings.Index(text, "| redislock ")
	if third := strings.Index(text, "| redsync "); first < 0 || first > second || second > third {
		t.Errorf("out of order:\n%s", text)
	}
}

// Both kinds of contenders have a place in tables, and -systems knows them.
func TestContenders(t *testing.T) {
	t.Parallel()
	all := contenders()
	if !slices.IsSorted([]int{turn("duly"), turn("asynq"), turn("raw"), turn("redislock"), turn("pg-advisory")}) || turn("duly") != 0 {
		t.Errorf("order %q", all)
	}
	if sorted := slices.Sorted(slices.Values(all)); len(slices.Compact(sorted)) != len(all) {
		t.Errorf("a name twice in %q", all)
	}
	if got := named(lockings(), []string{"asynq", "duly", "redsync"}); len(got) != 2 || got[0].name() != "duly" {
		t.Errorf("chose %v", got)
	}
}

// What the client sends is what the server gets, however it is sent. Both count
// from when the connections are there, for a server may not know, and then not
// count, what a client says of itself.
func TestCountedClient(t *testing.T) {
	t.Parallel()
	needRedis(t)
	ctx := t.Context()
	server, err := startRedis(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer server.stop()
	var sent atomic.Int64
	rdb := newCountedClient(server.addr, &sent)
	defer func() { _ = rdb.Close() }()
	subscription := rdb.Subscribe(ctx)
	defer func() { _ = subscription.Close() }()
	use := func(channel string) {
		pipe := rdb.Pipeline()
		for range 5 {
			pipe.Set(ctx, "long", strings.Repeat("*1\r\n", 10_000), 0)
		}
		_, err := pipe.Exec(ctx)
		err = errors.Join(err, rdb.Set(ctx, "key*3\r\n$", "value\r\n*1\r\n$4\r\n", 0).Err(), subscription.Subscribe(ctx, channel))
		if err == nil {
			_, err = subscription.Receive(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	use("first")
	counted := sent.Load()
	processed, err := server.info(ctx, "stats", "total_commands_processed")
	if err != nil {
		t.Fatal(err)
	}
	use("second")
	after, err := server.info(ctx, "stats", "total_commands_processed")
	if err != nil {
		t.Fatal(err)
	}
	// The first INFO counts once it has answered.
	if got, want := sent.Load()-counted, int64(after-processed)-1; got != want || got != 7 {
		t.Errorf("counted %d commands, the server %d, want 7", got, want)
	}
}

func TestCommandsInPieces(t *testing.T) {
	t.Parallel()
	stream := []byte("*2\r\n$3\r\nGET\r\n$4\r\n*1\r\n\r\n*1\r\n$0\r\n\r\n*1\r\n$4\r\nPING\r\n")
	for size := 1; size <= len(stream); size++ {
		var c commands
		var n int64
		for piece := range slices.Chunk(stream, size) {
			n += c.count(piece)
		}
		if n != 3 {
			t.Errorf("%d commands in pieces of %d bytes, want 3", n, size)
		}
	}
}

// semaphore is a locker that lets so many hold a lock at a time.
type semaphore chan struct{}

func (s semaphore) acquire(ctx context.Context, _ string) (held, error) {
	select {
	case s <- struct{}{}:
		return s, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s semaphore) release(context.Context) error { <-s; return nil }
func (s semaphore) close() error                  { return nil }

func contestOf(l locker) *contest {
	c := &contest{name: "a"}
	for i := range uint64(8) {
		c.callers = append(c.callers, &caller{locker: l, random: rand.New(rand.NewPCG(1, i))})
	}
	return c
}

func TestContestFailsUnlessTheLockExcludes(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	if err := contestOf(make(semaphore, 2)).run(t.Context(), 5*time.Second, &sent); !errors.Is(err, errShared) {
		t.Errorf("two at a time: %v", err)
	}
	if err := contestOf(make(semaphore, 1)).run(t.Context(), 100*time.Millisecond, &sent); err != nil {
		t.Errorf("one at a time: %v", err)
	}
}

// A lock that nobody gets is one for which all waited as long as there was.
func TestContestCountsWhoWaitsInVain(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	taken := make(semaphore, 1)
	taken <- struct{}{}
	c := contestOf(taken)
	if err := c.run(t.Context(), 50*time.Millisecond, &sent); err != nil {
		t.Fatal(err)
	}
	for i, one := range c.callers {
		if len(one.waits) != 1 || !one.waits[0].cut || one.waits[0].took <= 0 {
			t.Errorf("caller %d waited %v", i, one.waits)
		}
	}
	if fewest, most, all := c.shares(); fewest != 0 || most != 0 || all != 0 {
		t.Errorf("acquired %d, %d, %d", fewest, most, all)
	}
}

func TestWaitQuantile(t *testing.T) {
	t.Parallel()
	waits := func(ms ...int) []wait {
		var all []wait
		for _, v := range ms {
			all = append(all, wait{time.Duration(max(v, -v)) * time.Millisecond, v < 0}) // a negative one was cut
		}
		sortWaits(all)
		return all
	}
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	for _, c := range []struct {
		what  string
		waits []wait
		q     float64
		want  wait
	}{
		{"nearest rank", waits(hundred...), 0.99, waits(99)[0]},
		{"median", waits(3, 1, 2), 0.5, waits(2)[0]},
		{"longest", waits(hundred...), 1, waits(100)[0]},
		{"nobody waited to the end", waits(-4, -5, -3), 0.5, waits(-5)[0]},
		{"the longest was cut", waits(1, 2, -9), 1, waits(-9)[0]},
		{"short cuts say nothing of long waits", waits(-1, -1, -1, 7, 8), 0.5, waits(7)[0]},
		// 2/3 wait longer than 1; of the two that wait for 5 and more, half.
		{"a cut moves the rest up", waits(1, -2, 5, 6), 0.5, waits(5)[0]},
		{"cut at the time at which another ended", waits(-5, 5), 1, waits(-5)[0]},
	} {
		if got := waitQuantile(c.waits, c.q); got != c.want {
			t.Errorf("%s: got %v, want %v", c.what, got, c.want)
		}
	}
}
