package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// An ailment is a state in which Redis refuses to serve.
type ailment struct {
	word string // in what it answers then; "": the client does not pass that on
	args []string
	// falls makes Redis ill. It returns what makes it well again.
	falls func(c *crew, server *redistest.Server, admin *redis.Client) (mend func())
}

var ailments = map[string]ailment{
	"misconf":    {"MISCONF", []string{"--enable-protected-configs", "yes"}, cannotSave},
	"loading":    {"LOADING", []string{"--appendonly", "yes", "--key-load-delay", "150"}, loads},
	"readonly":   {"READONLY", nil, follows},
	"maxclients": {"", nil, turnsAway},
	"busy":       {"BUSY", []string{"--busy-reply-threshold", "200"}, isBusy},
}

// While Redis refuses, every verb fails, nothing that was refused happens, and workers
// wait without a hot loop. When it is over they go on by themselves.
func TestRefusalsAreWaitedOut(t *testing.T) {
	for name, ill := range ailments {
		t.Run(name, func(t *testing.T) {
			r := begin(t, "redis refuses: "+name)
			inMemory(t)
			server := redistest.Start(t, ill.args...)
			c := r.assemble(process{Redis: place{Socket: server.Socket}, Slots: 4, Lease: 2 * time.Second, MaxCrashes: 1_000_000})
			hands := []*hand{c.mustHire(), c.mustHire()}
			ts := newTries()
			for i := range pick(1, 1, 20) {
				c.suffer(ts, i, server, ill, len(hands))
			}
			c.finish(hands, time.Minute)
			r.clean(ts.count(c.runs(), attempts))
		})
	}
}

// suffer makes Redis ill while tasks become due, and well again.
func (c *crew) suffer(ts *tries, round int, server *redistest.Server, ill ailment, workers int) {
	c.t.Helper()
	const tasks = 100
	spread := pick(3*time.Second, 5*time.Second, 15*time.Second)
	next := func(i int) (duly.Task, []queue.EnqueueOption) {
		task, _ := c.mixed(round*1000 + i)
		return task, []queue.EnqueueOption{queue.In(time.Duration(c.roll(int(spread))))}
	}
	c.enqueue(ts, tasks, time.Millisecond, next)
	kept := duly.Task{ID: fmt.Sprintf("kept-%d", round), Kind: "quick"}
	_, err := c.Enqueue(c.t.Context(), kept, queue.In(spread-time.Second))
	must(c.t, err)
	ts.note(kept.ID, nil)

	admin := server.Client()
	said, calls, began := len(c.said()), served(c.t, admin), time.Now()
	mend := ill.falls(c, server, admin)
	c.fault("refusal", 1)
	var refused []duly.Task
	for i := range 10 {
		task, _ := next(tasks + i)
		refused = append(refused, task)
	}
	own := c.refuses(ts, refused, kept.ID, ill.word)
	time.Sleep(pick(1500*time.Millisecond, 3*time.Second, 10*time.Second))
	last, _ := next(tasks + 10)
	own += c.refuses(ts, []duly.Task{last}, kept.ID, ill.word) // it is still ill
	mend()
	lasted := time.Since(began)
	now := served(c.t, admin)
	if now < calls {
		calls = 0 // it was started anew
	}
	took := c.awaitRun(5 * time.Second)
	most := workers * (10 + int(4*lasted.Seconds()))
	c.promise(now-calls-own <= most, "%d calls by workers in %v of refusals, at most %d wanted", now-calls-own, lasted, most)
	lines := c.said()[said:]
	c.promise(len(lines) <= 10*workers, "%d lines logged in %v, such as %.500s", len(lines), lasted, fmt.Sprint(lines))
	c.worst("calls by workers while ill, a second", float64(now-calls-own)/lasted.Seconds())
	c.worst("lines logged, a worker", float64(len(lines))/float64(workers))
	c.worst("until they went on, ms", float64(took.Milliseconds()))
}

// worst notes the highest of several figures.
func (r *report) worst(what string, value float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Measured[what] = max(r.Measured[what], value)
}

// refuses tries to enqueue tasks, and to change one that is there, on a Redis that
// refuses. It returns with how many calls.
func (c *crew) refuses(ts *tries, tasks []duly.Task, due, word string) int {
	c.t.Helper()
	verbs := []func(context.Context) error{
		func(ctx context.Context) error {
			_, err := c.Cancel(ctx, due)
			return err
		},
		func(ctx context.Context) error {
			_, err := c.Reschedule(ctx, due, queue.In(1000*time.Hour))
			return err
		},
	}
	for _, task := range tasks {
		verbs = append(verbs, func(ctx context.Context) error {
			_, err := c.Enqueue(ctx, task)
			ts.note(task.ID, err)
			return err
		})
	}
	var calls sync.WaitGroup
	errs := make([]error, len(verbs))
	for i, verb := range verbs {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
			defer cancel()
			errs[i] = verb(ctx)
		})
	}
	calls.Wait()
	for _, err := range errs {
		if err == nil || word != "" && errors.Is(err, queue.ErrUnknownOutcome) || !strings.Contains(err.Error(), word) {
			c.broken("Redis refuses, and a call has answered %v, want %q", err, word)
			break
		}
	}
	return len(verbs)
}

var calledOrRejected = regexp.MustCompile(`(?m)^cmdstat_eval(?:sha)?:calls=(\d+),.*rejected_calls=(\d+)|^rejected_connections:(\d+)`)

// served is how many scripts were asked for, whether they were run or not, and how
// many connections were refused.
func served(tb testing.TB, admin *redis.Client) (n int) {
	tb.Helper()
	info, err := admin.Info(tb.Context(), "commandstats", "stats").Result()
	must(tb, err)
	for _, found := range calledOrRejected.FindAllStringSubmatch(info, -1) {
		for _, digits := range found[1:] {
			more, _ := strconv.Atoi(digits) // what is not there counts nothing
			n += more
		}
	}
	return n
}

// cannotSave has Redis fail to save a snapshot: its directory is gone.
func cannotSave(c *crew, server *redistest.Server, admin *redis.Client) func() {
	ctx, home := c.t.Context(), filepath.Dir(server.Socket)
	gone := filepath.Join(home, "gone")
	must(c.t, os.Mkdir(gone, 0o700))
	must(c.t, admin.ConfigSet(ctx, "dir", gone).Err())
	must(c.t, os.Remove(gone))
	must(c.t, admin.ConfigSet(ctx, "save", "3600 1").Err())
	saved := func(status string) {
		must(c.t, admin.BgSave(ctx).Err())
		eventually(c.t, "a snapshot has ended: "+status, 10*time.Second, func() bool {
			info, err := admin.Info(ctx, "persistence").Result()
			return err == nil && strings.Contains(info, "rdb_bgsave_in_progress:0") && strings.Contains(info, "rdb_last_bgsave_status:"+status)
		})
	}
	saved("err")
	return func() {
		must(c.t, admin.ConfigSet(ctx, "dir", home).Err())
		saved("ok")
	}
}

// loads has Redis start anew with much to load.
func loads(c *crew, server *redistest.Server, admin *redis.Client) func() {
	ctx := c.t.Context()
	if admin.Exists(ctx, "filler").Val() == 0 { // else it has been written in an earlier round
		pipe := admin.Pipeline()
		for i := range pick(15_000, 25_000, 60_000) {
			pipe.Set(ctx, "filler", i, 0)
		}
		_, err := pipe.Exec(ctx)
		must(c.t, err)
	}
	server.Kill()
	up := make(chan struct{})
	go func() {
		defer close(up)
		server.Restart() // returns when all is loaded
	}()
	eventually(c.t, "Redis loads", 10*time.Second, func() bool {
		return redis.HasErrorPrefix(admin.Get(ctx, "filler").Err(), "LOADING")
	})
	return func() { <-up }
}

// follows makes Redis a replica, of a master that is not there.
func follows(c *crew, _ *redistest.Server, admin *redis.Client) func() {
	must(c.t, admin.ReplicaOf(c.t.Context(), "127.0.0.1", "1").Err())
	return func() { must(c.t, admin.ReplicaOf(c.t.Context(), "NO", "ONE").Err()) }
}

// turnsAway ends all connections but one, and takes no others.
func turnsAway(c *crew, _ *redistest.Server, admin *redis.Client) func() {
	ctx := c.t.Context()
	before, err := admin.ConfigGet(ctx, "maxclients").Result()
	must(c.t, err)
	must(c.t, admin.ConfigSet(ctx, "maxclients", "1").Err())
	for _, kind := range []string{"normal", "pubsub"} {
		must(c.t, admin.ClientKillByFilter(ctx, "type", kind, "skipme", "yes").Err())
	}
	return func() { must(c.t, admin.ConfigSet(ctx, "maxclients", before["maxclients"]).Err()) }
}

// isBusy has Redis run a script that does not end.
func isBusy(c *crew, server *redistest.Server, admin *redis.Client) func() {
	ctx, other := c.t.Context(), server.Client()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = other.Do(ctx, "eval", "while true do end", 0).Err() // ends by SCRIPT KILL
	}()
	eventually(c.t, "Redis is busy", 10*time.Second, func() bool {
		return redis.HasErrorPrefix(admin.Get(ctx, "any").Err(), "BUSY")
	})
	return func() {
		must(c.t, admin.ScriptKill(ctx).Err())
		<-ended
	}
}
