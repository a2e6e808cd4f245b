package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// payloadMost bounds what is read from standard input; the queue refuses more
// than its own bound, which is lower.
const payloadMost = 4 << 20

func newFlags(name string) *flag.FlagSet { return flag.NewFlagSet(name, flag.ContinueOnError) }

func stats(ctx context.Context, t *tool, args []string) error {
	q, _, err := t.queue(newFlags("stats"), args, 1, 1)
	if err != nil {
		return err
	}
	s, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	return t.out.stats(q.Name(), s)
}

func list(ctx context.Context, t *tool, args []string) error {
	flags := newFlags("list")
	state := flags.String("state", string(queue.Due), "due, parked, leased, dead or done")
	offset := flags.Int("offset", 0, "how many to leave out")
	limit := flags.Int("limit", 20, "how many to list, at most 1000")
	payload := flags.Bool("payload", false, "show payloads")
	q, _, err := t.queue(flags, args, 1, 1)
	if err != nil {
		return err
	}
	infos, err := q.List(ctx, queue.State(*state), *offset, *limit)
	if err != nil {
		return err
	}
	return t.out.tasks(infos, *payload)
}

func get(ctx context.Context, t *tool, args []string) error {
	flags := newFlags("get")
	payload := flags.Bool("payload", false, "show the payload")
	q, words, err := t.queue(flags, args, 2, 2)
	if err != nil {
		return err
	}
	info, err := q.Get(ctx, words[0])
	if err != nil {
		return err
	}
	if info.State == queue.Missing {
		return fmt.Errorf("no task %q in %q", words[0], q.Name())
	}
	return t.out.tasks([]queue.Info{info}, *payload)
}

func enqueue(ctx context.Context, t *tool, args []string) error {
	flags := newFlags("enqueue")
	id := flags.String("id", "", "the task's business key")
	key := flags.String("lock-key", "", "what the task works on")
	in := flags.Duration("in", 0, "how long from now it is due")
	at := flags.String("at", "", "when it is due, as 2006-01-02T15:04:05Z")
	payload := flags.String("payload", "", "the payload; - reads standard input")
	expires := flags.String("expires", "", "when it becomes useless, as 2006-01-02T15:04:05Z")
	onExpiry := flags.String("on-expiry", "", "what becomes of it then: bury (default) or drop")
	every := flags.String("every", "", "the schedule of a task that recurs, as '@every 10m' or 'CRON_TZ=Europe/Berlin 30 2 * * *'")
	grace := flags.Duration("grace", 0, "how late a run of it may start; later it is skipped")
	retain := flags.Duration("retain", 0, "how long it is kept when it is done")
	conflict := flags.String("on-conflict", string(queue.Keep), "keep, replace or earliest")
	q, words, err := t.queue(flags, args, 2, 2)
	if err != nil {
		return err
	}
	when, err := dueOption(*in, *at)
	if err != nil {
		return err
	}
	task := duly.Task{ID: *id, Kind: words[0], LockKey: *key, Payload: []byte(*payload), Retain: *retain, Every: *every, Grace: *grace}
	switch {
	case *expires == "" && *onExpiry != "":
		return fmt.Errorf("%w: -on-expiry without -expires", errUsage)
	case *expires != "":
		task.OnExpiry = duly.Action(*onExpiry)
		if task.Expires, err = moment("-expires", *expires); err != nil {
			return err
		}
	}
	if *payload == "-" {
		if task.Payload, err = io.ReadAll(io.LimitReader(t.in, payloadMost)); err != nil {
			return err
		}
	}
	if task.Every != "" {
		if when, err = firstTick(ctx, q, task, when, *in != 0 || *at != ""); err != nil {
			return err
		}
	}
	receipt, err := q.Enqueue(ctx, task, when, queue.OnConflict(queue.Conflict(*conflict)))
	if err != nil {
		return err
	}
	return t.out.receipt(receipt)
}

// firstTick makes a recurring task due at the first tick after the server's now,
// unless it was told when.
func firstTick(ctx context.Context, q *queue.Queue, task duly.Task, when queue.EnqueueOption, told bool) (queue.EnqueueOption, error) {
	if err := q.CheckTask(task); err != nil {
		return nil, err
	}
	if _, err := worker.NextTick(task.Every, time.Now()); err != nil {
		return nil, fmt.Errorf("%w: -every: %w", errUsage, err)
	}
	if told {
		return when, nil
	}
	s, err := q.Stats(ctx)
	if err != nil {
		return nil, err
	}
	first, err := worker.NextTick(task.Every, s.Now)
	return queue.At(first), err
}

func dueOption(in time.Duration, at string) (queue.EnqueueOption, error) {
	if at == "" {
		return queue.In(in), nil
	}
	if in != 0 {
		return nil, fmt.Errorf("%w: both -in and -at", errUsage)
	}
	due, err := moment("-at", at)
	return queue.At(due), err
}

func moment(flag, text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.IsZero() {
		return t, fmt.Errorf("%w: %s %q is not like 2006-01-02T15:04:05Z", errUsage, flag, text)
	}
	return t, nil
}

func cancel(ctx context.Context, t *tool, args []string) error {
	flags := newFlags("cancel")
	running := flags.Bool("running", false, "cancel those that run as well: their handlers are told to end")
	q, ids, err := t.queue(flags, args, 2, -1)
	if err != nil {
		return err
	}
	verb, on := q.Cancel, []queue.State{queue.Due, lastRun, replacementDue}
	if *running {
		verb, on = q.CancelRunning, append(on, queue.Leased)
	}
	for _, id := range ids {
		before, err := q.Get(ctx, id) // after it a run may have ended, and what was removed is gone
		if err != nil {
			return err
		}
		found, err := verb(ctx, id)
		if err != nil {
			return err
		}
		switch {
		case found != queue.Leased || *running:
		case before.Every != "":
			found = lastRun
		case !before.Replacement.IsZero():
			found = replacementDue
		}
		if err := t.out.found(id, found, "cancelled", on...); err != nil {
			return err
		}
	}
	return nil
}

func reschedule(ctx context.Context, t *tool, args []string) error {
	flags := newFlags("reschedule")
	in := flags.Duration("in", 0, "how long from now it is due")
	at := flags.String("at", "", "when it is due, as 2006-01-02T15:04:05Z")
	q, words, err := t.queue(flags, args, 2, 2)
	if err != nil {
		return err
	}
	when, err := dueOption(*in, *at)
	if err != nil {
		return err
	}
	before, err := q.Get(ctx, words[0])
	if err != nil {
		return err
	}
	found, err := q.Reschedule(ctx, words[0], when)
	if err != nil {
		return err
	}
	if found == queue.Leased && !before.Replacement.IsZero() {
		found = replacementDue
	}
	return t.out.found(words[0], found, "rescheduled", queue.Due, replacementDue)
}

func revive(ctx context.Context, t *tool, args []string) error {
	flags := newFlags("revive")
	all := flags.Bool("all", false, "revive every dead task")
	q, ids, err := t.queue(flags, args, 1, -1)
	if err != nil {
		return err
	}
	if *all == (len(ids) > 0) {
		return fmt.Errorf("%w: name IDs, or -all", errUsage)
	}
	if !*all {
		n, err := q.Revive(ctx, ids...)
		if err != nil {
			return err
		}
		return t.out.count(n, "revived")
	}
	// As many as are dead now: a task that dies again meanwhile is left.
	s, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	total := 0
	for total < s.Dead {
		infos, err := q.List(ctx, queue.Dead, 0, min(s.Dead-total, queue.MaxPage))
		if err != nil {
			return err
		}
		ids = ids[:0]
		for i := range infos {
			ids = append(ids, infos[i].ID)
		}
		n, err := q.Revive(ctx, ids...)
		if total += n; err != nil {
			return err
		}
		if n == 0 {
			break
		}
	}
	return t.out.count(total, "revived")
}

func purge(ctx context.Context, t *tool, args []string) error {
	flags := newFlags("purge")
	age := flags.Duration("age", 0, "only those that died longer ago")
	yes := flags.Bool("yes", false, "really do it")
	q, _, err := t.queue(flags, args, 1, 1)
	if err != nil {
		return err
	}
	if !*yes {
		return fmt.Errorf("%w: purging cannot be undone; add -yes", errUsage)
	}
	n, err := q.Purge(ctx, *age)
	if err != nil {
		return err
	}
	return t.out.count(n, "purged")
}

func pause(ctx context.Context, t *tool, args []string) error {
	q, _, err := t.queue(newFlags("pause"), args, 1, 1)
	if err != nil {
		return err
	}
	return q.Pause(ctx)
}

func resume(ctx context.Context, t *tool, args []string) error {
	q, _, err := t.queue(newFlags("resume"), args, 1, 1)
	if err != nil {
		return err
	}
	return q.Resume(ctx)
}

// limit changes the limits whose flags are given and shows all.
func limit(ctx context.Context, t *tool, args []string) error {
	flags := newFlags("limit")
	running := flags.Int("running", 0, "how many tasks run at once over all workers; 0 is no limit")
	rate := flags.Float64("rate", 0, "how many tasks start in a second over all workers; 0 is no limit")
	burst := flags.Int("burst", 0, "how many may start at once; by default what the rate brings in 10 ms, at least 1")
	q, _, err := t.queue(flags, args, 1, 1)
	if err != nil {
		return err
	}
	given := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	limits, err := q.Limits(ctx)
	if err != nil {
		return err
	}
	if given["running"] {
		limits.Running = *running
	}
	if given["rate"] {
		limits.Rate, limits.Burst = *rate, 0
	}
	if given["burst"] {
		limits.Burst = *burst
	}
	if given["running"] || given["rate"] || given["burst"] {
		if err := q.SetLimits(ctx, limits); err != nil {
			return err
		}
		if limits, err = q.Limits(ctx); err != nil {
			return err
		}
	}
	return t.out.limits(limits)
}
