package queue_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// The user that SECURITY.md proposes can do all that a queue does, and nothing
// beside it.
func TestTheLeastPrivilegedUserOfSecurityMdIsEnough(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	rule := regexp.MustCompile(`(?s)ACL SETUSER.*?\n\n|ACL SETUSER.*$`).FindString(string(page))
	words := strings.Fields(strings.ReplaceAll(rule, "\\", ""))
	if len(words) < 10 {
		t.Fatalf("SECURITY.md has no ACL SETUSER: %q", rule)
	}
	args := make([]any, len(words))
	for i, w := range words {
		args[i] = w
	}
	server := redistest.Start(t)
	if err := server.Client().Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket, Username: words[2], Password: "password"})
	t.Cleanup(func() { _ = rdb.Close() })

	everyVerb(t, rdb)
	for _, forbidden := range [][]any{{"KEYS", "*"}, {"FLUSHALL"}, {"GET", "other"}, {"CONFIG", "GET", "*"}, {"EVAL", "return redis.call('FLUSHALL')", 0}} {
		if err := rdb.Do(t.Context(), forbidden...).Err(); err == nil {
			t.Errorf("%v is allowed", forbidden)
		}
	}
}

// everyVerb calls each of them once and fails at the first error.
func everyVerb(t *testing.T, rdb redis.UniversalClient) {
	t.Helper()
	q, err := queue.New(rdb, "orders", queue.Config{MaxCrashes: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	hinted := make(chan struct{}, 100)
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		q.Watch(watching, func(time.Duration) { hinted <- struct{}{} }, func(string, uint64) {})
		close(watched)
	}()
	<-hinted // it has subscribed
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = q.Enqueue(ctx, duly.Task{ID: "cancelled", Kind: "k"})
	must(err)
	ds, _, err := q.Pop(ctx, 1, time.Second)
	must(err)
	_, err = q.CancelRunning(ctx, "cancelled")
	must(err)
	_, err = q.Settle(ctx, []duly.Settlement{{Delivery: ds[0], Action: duly.Retried}})
	must(err)
	task := duly.Task{ID: "a", Kind: "k", LockKey: "key", Retain: time.Hour}
	for _, c := range []queue.Conflict{queue.Keep, queue.Replace, queue.Earliest} {
		_, err = q.Enqueue(ctx, task, queue.OnConflict(c))
		must(err)
	}
	settle := func(action duly.Action) {
		t.Helper()
		ds, _, err := q.Pop(ctx, 1, 100*time.Millisecond)
		must(err)
		if len(ds) != 1 {
			t.Fatalf("popped %d tasks before %s", len(ds), action)
		}
		_, _, err = q.Extend(ctx, ds, time.Second)
		must(err)
		must(q.Progress(ctx, ds[0], []byte("1")))
		_, err = q.Enqueue(ctx, duly.Task{ID: "a", Kind: "k"}, queue.OnConflict(queue.Keep))
		must(err)
		_, err = q.Settle(ctx, []duly.Settlement{{Delivery: ds[0], Action: action, At: ds[0].Popped.Add(time.Hour)}})
		must(err)
	}
	settle(duly.Retried)
	settle(duly.Released)
	settle(duly.Buried)
	_, err = q.Revive(ctx, "a")
	must(err)
	settle(duly.Repeated)
	_, err = q.Recur(ctx, duly.Task{ID: "a", Kind: "k", Every: "@hourly"}, func(now time.Time) time.Time { return now })
	must(err)
	_, err = q.Reschedule(ctx, "a", queue.In(time.Hour))
	must(err)
	_, err = q.Get(ctx, "a")
	must(err)
	_, err = q.Peek(ctx, 1)
	must(err)
	waited := make(chan error)
	go func() {
		_, err := q.Wait(ctx, "a")
		waited <- err
	}()
	for q.Looked() == 0 {
		time.Sleep(time.Millisecond)
	}
	_, err = q.Cancel(ctx, "a")
	must(err)
	must(<-waited)
	_, err = q.Enqueue(ctx, task)
	must(err)
	settle(duly.Acked)
	_, err = q.List(ctx, queue.Done, 0, 1)
	must(err)
	_, err = q.Stats(ctx)
	must(err)
	must(q.Pause(ctx))
	must(q.Resume(ctx))
	must(q.SetLimits(ctx, queue.Limits{Running: 1, Rate: 1000}))
	_, err = q.Enqueue(ctx, task)
	must(err)
	settle(duly.Acked)
	must(q.SetLimits(ctx, queue.Limits{}))
	must(q.Lock(ctx, time.Second, func(context.Context) error { return nil }))
	_, err = q.Purge(ctx, 0)
	must(err)
	everyVerbOfLocks(t, q.Locker())
	stop()
	<-watched
}

// everyVerbOfLocks has a lock waited for, looked at, handed over and taken by
// force.
func everyVerbOfLocks(t *testing.T, locks *lock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	lease, err := locks.Acquire(ctx, "order:42", time.Minute)
	must(err)
	handedOver := make(chan error)
	go func() {
		handedOver <- locks.Do(ctx, "order:42", time.Minute, func(context.Context, *lock.Lease) error { return nil })
	}()
	for info := (lock.Info{}); info.Waiters == 0; {
		info, err = locks.Inspect(ctx, "order:42")
		must(err)
	}
	must(lease.Extend(ctx, time.Minute))
	_, err = locks.ForceRelease(ctx, "order:42")
	must(err)
	must(<-handedOver)
}
