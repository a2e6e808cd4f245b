package worker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// tick is a recurring task.
var tick = duly.Task{ID: "tick", Kind: "k"}

// every is a Config with one recurring task, whose retries come after 7 s.
func every(schedule string, task duly.Task) worker.Config {
	return worker.Config{
		Recurring: []worker.Recurring{worker.Every(schedule, task)}, MaxAttempts: 3,
		Backoff: func(int, error, *duly.Task) time.Duration { return 7 * time.Second },
	}
}

// told lists runs as the time since the start and the attempt.
func (j *journal) told(start time.Time) string {
	var runs []string
	for _, e := range j.all() {
		runs = append(runs, fmt.Sprintf("%v/%d", e.at.Sub(start).Truncate(time.Millisecond), e.Attempt))
	}
	return strings.Join(runs, " ")
}

// Whatever becomes of a tick, the next comes when the schedule says.
func TestTicksComeWhenTheScheduleSaysWhateverBecameOfTheLast(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer handler
		want   string // runs, as minutes of the schedule and attempts
		note   string // in the error that is kept after 3m50s
	}{
		"done": {done, "1m0s/1 2m0s/1 3m0s/1", ""},
		"fails once": {func(_ context.Context, d *duly.Delivery) error {
			if d.Attempt == 1 {
				return errBoom
			}
			return nil
		}, "1m0s/1 1m7s/2 2m0s/1 2m7s/2 3m0s/1 3m7s/2", ""},
		"out of attempts":              {answer(errBoom), "1m0s/1 1m7s/2 1m14s/3 2m0s/1 2m7s/2 2m14s/3 3m0s/1 3m7s/2 3m14s/3", "boom"},
		"retry before the next":        {answer(duly.RetryIn(59*time.Second, errBoom)), "1m0s/1 1m59s/2 2m0s/1 2m59s/2 3m0s/1", "boom"},
		"retry with the next":          {answer(duly.RetryIn(time.Minute, errBoom)), "1m0s/1 2m0s/1 3m0s/1", "boom"},
		"retry after the next":         {answer(duly.RetryIn(time.Hour, errBoom)), "1m0s/1 2m0s/1 3m0s/1", "boom"},
		"Bury":                         {answer(duly.Bury(errBoom)), "1m0s/1 2m0s/1 3m0s/1", "bury: boom"},
		"Drop":                         {answer(duly.Drop(errBoom)), "1m0s/1 2m0s/1 3m0s/1", "drop: boom"},
		"Snooze past the next":         {answer(duly.Snooze(90 * time.Second)), "1m0s/1 2m30s/1", ""},
		"panic":                        {func(context.Context, *duly.Delivery) error { panic(duly.Drop(errBoom)) }, "1m0s/1 1m7s/2 1m14s/3 2m0s/1 2m7s/2 2m14s/3 3m0s/1 3m7s/2 3m14s/3", "panic"},
		"ends its goroutine":           {func(context.Context, *duly.Delivery) error { runtime.Goexit(); return nil }, "1m0s/1 1m7s/2 1m14s/3 2m0s/1 2m7s/2 2m14s/3 3m0s/1 3m7s/2 3m14s/3", "Goexit"},
		"takes longer than a tick":     {work(70 * time.Second), "1m0s/1 3m0s/1", ""},
		"a kind without a handler":     {answer(duly.ErrNoHandler), "1m0s/1 1m30s/1 2m0s/1 2m30s/1 3m0s/1 3m30s/1", ""},
		"answers when the next is due": {work(time.Minute), "1m0s/1 3m0s/1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				q, j, start := openQueue(t, "q"), new(journal), time.Now()
				launch(t, handler(func(ctx context.Context, d *duly.Delivery) error {
					j.add(d)
					return c.answer(ctx, d)
				}), every("@every 1m", tick), q)
				pass(3*time.Minute + 50*time.Second)
				if got := j.told(start); got != c.want {
					t.Errorf("runs\n%s, want\n%s", got, c.want)
				}
				info, err := q.Get(t.Context(), tick.ID)
				must(t, err)
				if !strings.Contains(info.LastError, c.note) || c.note == "" && info.LastError != "" || info.Every != "@every 1m" {
					t.Errorf("it is %s, every %q, with the error %q", info.State, info.Every, info.LastError)
				}
			})
		})
	}
}

// A failed tick is told at the level of an error, once.
func TestATickThatFailedIsLogged(t *testing.T) {
	virtual(t, func(t *testing.T) {
		cfg := every("@every 1m", tick)
		logger, logs := observe()
		cfg.Logger = logger
		w := launch(t, answer(errBoom), cfg, openQueue(t, "q"))
		pass(150 * time.Second)
		failed := logs.FilterMessage("tick failed").All()
		if len(failed) != 2 || failed[0].Level != zap.ErrorLevel || logs.FilterMessage("task buried").Len() != 0 {
			t.Errorf("%d lines: %v", len(failed), logs.All())
		}
		if s := w.Stats(); s.Repeated != 2 || s.Retried != 4 || s.Buried != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// downtime runs a worker for a while, then none, and then another.
func downtime(t *testing.T, cfg worker.Config, q worker.Source, away time.Duration) *journal {
	t.Helper()
	j := new(journal)
	w := launch(t, handler(j.note), cfg, q)
	pass(5*time.Minute + 30*time.Second)
	w.stop()
	pass(away)
	launch(t, handler(j.note), cfg, q)
	pass(5 * time.Minute)
	return j
}

func TestAMissedTickRunsOnceAndLate(t *testing.T) {
	virtual(t, func(t *testing.T) {
		start := time.Now()
		j := downtime(t, every("@every 2m", tick), openQueue(t, "q"), 20*time.Minute)
		if got, want := j.told(start), "2m0s/1 4m0s/1 25m30s/1 26m0s/1 28m0s/1 30m0s/1"; got != want {
			t.Errorf("runs %s, want %s", got, want)
		}
		if late := j.all()[2]; late.Due.Sub(start) != 6*time.Minute {
			t.Errorf("the late one was due at %v", late.Due)
		}
	})
}

func TestATickLaterThanItsGraceIsSkipped(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		grace time.Duration
		want  string
	}{
		"under": {19*time.Minute + 29*time.Second, "2m0s/1 4m0s/1 26m0s/1 28m0s/1 30m0s/1"},
		"over":  {19*time.Minute + 31*time.Second, "2m0s/1 4m0s/1 25m30s/1 26m0s/1 28m0s/1 30m0s/1"},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				task := tick
				task.Grace = c.grace
				q, start := openQueue(t, "q"), time.Now()
				j := downtime(t, every("@every 2m", task), q, 20*time.Minute)
				if got := j.told(start); got != c.want {
					t.Errorf("runs %s, want %s", got, c.want)
				}
			})
		})
	}
}

func TestASkippedTickIsToldAndTheNextRuns(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q := openQueue(t, "q")
		task := tick
		task.Every, task.Grace = "@every 2m", time.Second
		_, err := q.Enqueue(t.Context(), task)
		must(t, err)
		pass(10 * time.Second)
		j := new(journal)
		w := launch(t, handler(j.note), worker.Config{Concurrency: 1}, q)
		pass(time.Second)
		info, err := q.Get(t.Context(), tick.ID)
		must(t, err)
		if s := w.Stats(); s.Skipped != 1 || s.Repeated != 1 || len(j.all()) != 0 || info.LastError != duly.ErrSkipped.Error() {
			t.Errorf("stats %+v, %d runs, error %q", s, len(j.all()), info.LastError)
		}
		pass(2 * time.Minute)
		if len(j.all()) != 1 {
			t.Errorf("%d runs after the next tick", len(j.all()))
		}
	})
}

// Another worker may know schedules that this one does not.
func TestAScheduleThatCannotBeReadBuriesItsTaskVisibly(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q, j := openQueue(t, "q"), new(journal)
		for id, schedule := range map[string]string{"newer": "@fortnightly", "bad zone": "CRON_TZ=", "never": "0 0 30 2 *", "good": "@every 1m"} {
			_, err := q.Enqueue(t.Context(), duly.Task{ID: id, Kind: "k", Every: schedule})
			must(t, err)
		}
		launch(t, handler(j.note), worker.Config{}, q)
		pass(30 * time.Second)
		dead, err := q.List(t.Context(), queue.Dead, 0, 9)
		must(t, err)
		if len(dead) != 3 || len(j.all()) != 1 {
			t.Fatalf("%d are dead, %d ran", len(dead), len(j.all()))
		}
		for _, info := range dead {
			if !strings.Contains(info.LastError, "schedule") || info.Every == "" {
				t.Errorf("%s: every %q: %s", info.ID, info.Every, info.LastError)
			}
		}
	})
}

// What is dead is so for a reason: a worker that starts says so, and leaves it.
func TestADeadRecurringTaskIsToldAtEachStartUntilItChanges(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q, j := openQueue(t, "q"), new(journal)
		cfg := every("@every 1m", tick)
		logger, logs := observe()
		cfg.Logger = logger
		task := tick
		task.Every = "@every 1m"
		_, err := q.Enqueue(t.Context(), task)
		must(t, err)
		ds, _, err := q.Pop(t.Context(), 1, time.Minute)
		must(t, err)
		_, err = q.Settle(t.Context(), []duly.Settlement{{Delivery: ds[0], Action: duly.Buried}})
		must(t, err)
		for range 2 {
			w := launch(t, handler(j.note), cfg, q)
			pass(5 * time.Minute)
			w.stop()
		}
		said := logs.FilterMessageSnippet("recurring task is dead").All()
		if len(said) != 2 || said[0].Level != zap.ErrorLevel || len(j.all()) != 0 {
			t.Errorf("%d lines, %d runs", len(said), len(j.all()))
		}
		cfg.Recurring = every("@every 2m", tick).Recurring
		launch(t, handler(j.note), cfg, q)
		pass(4*time.Minute + time.Second)
		if len(j.all()) != 2 {
			t.Errorf("%d runs after it has changed", len(j.all()))
		}
	})
}

func TestAScheduleEndsWhenItsTaskExpires(t *testing.T) {
	virtual(t, func(t *testing.T) {
		q, j, start := openQueue(t, "q"), new(journal), time.Now()
		task := tick
		task.Expires, task.OnExpiry = start.Add(150*time.Second), duly.Dropped
		launch(t, handler(j.note), every("@every 1m", task), q)
		pass(10 * time.Minute)
		info, err := q.Get(t.Context(), tick.ID)
		must(t, err)
		if got := j.told(start); got != "1m0s/1 2m0s/1" || info.State != queue.Missing {
			t.Errorf("runs %s, then it is %s", got, info.State)
		}
	})
}

// Ticks through the nights when clocks change, by a worker: the report of 02:30 is
// made each night, once, and the hourly sweep each hour.
func TestTicksOfAWorkerWhereClocksChange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ from, reports string }{
		"forward": {"2000-03-25T00:00:00Z", "25 02:30 +0100, 26 03:00 +0200, 27 02:30 +0200"},
		"back":    {"2000-10-28T00:00:00Z", "28 02:30 +0200, 29 02:30 +0200, 30 02:30 +0100"},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				from, err := time.Parse(time.RFC3339, c.from)
				must(t, err)
				time.Sleep(time.Until(from))
				j := new(journal)
				cfg := worker.Config{Lease: time.Hour, Recurring: []worker.Recurring{
					worker.Every("CRON_TZ=Europe/Berlin 30 2 * * *", duly.Task{ID: "report", Kind: "k"}),
					worker.Every("CRON_TZ=Europe/Berlin @hourly", duly.Task{ID: "sweep", Kind: "k"}),
				}}
				launch(t, handler(j.note), cfg, &patient{Queue: openQueue(t, "q")})
				pass(50*time.Hour + time.Minute)
				berlin, err := time.LoadLocation("Europe/Berlin")
				must(t, err)
				var reports []string
				for _, e := range j.all("report") {
					reports = append(reports, e.at.In(berlin).Format("02 15:04 -0700"))
				}
				if got := strings.Join(reports, ", "); got != c.reports {
					t.Errorf("reports at %s, want %s", got, c.reports)
				}
				for i, e := range j.all("sweep") {
					within(t, "sweep", e.at.Sub(from)-time.Duration(i+1)*time.Hour, 0, time.Millisecond)
				}
				if n := len(j.all("sweep")); n != 50 {
					t.Errorf("%d sweeps in 50 hours", n)
				}
			})
		})
	}
}

func TestRecurringTasksLiveInTheSourceThatIsNamed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		first, second := openQueue(t, "first"), openQueue(t, "second")
		j := new(journal)
		launch(t, handler(j.note), worker.Config{Recurring: []worker.Recurring{
			worker.Every("@every 1m", tick), worker.Every("@every 1m", tick, worker.Within("second")),
		}}, first, second)
		pass(61 * time.Second)
		var queues []string
		for _, e := range j.all() {
			queues = append(queues, e.Queue)
		}
		if slices.Sort(queues); !slices.Equal(queues, []string{"first", "second"}) {
			t.Errorf("ran in %v", queues)
		}
	})
}

func TestRunRefusesBadRecurringTasks(t *testing.T) {
	t.Parallel()
	q, err := queue.New(redistest.Virtual(t)(), "q", queue.Config{})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for says, c := range map[string]struct {
		source    worker.Source
		recurring []worker.Recurring
	}{
		"unrecognized descriptor":     {q, []worker.Recurring{worker.Every("@reboot", tick)}},
		"has no tick":                 {q, []worker.Recurring{worker.Every("0 0 30 2 *", tick)}},
		"time zone Mars/Base":         {q, []worker.Recurring{worker.Every("CRON_TZ=Mars/Base @daily", tick)}},
		"not made by Every":                  {q, []worker.Recurring{{}, worker.Every("@daily", tick)}},
		"without an ID":               {q, []worker.Recurring{worker.Every("@daily", duly.Task{Kind: "k"})}},
		"empty kind":                  {q, []worker.Recurring{worker.Every("@daily", duly.Task{ID: "x"})}},
		"Grace -1ns":                  {q, []worker.Recurring{worker.Every("@daily", duly.Task{ID: "x", Kind: "k", Grace: -1})}},
		"arguments of kind":           {q, []worker.Recurring{worker.Every("@daily", duly.Kind[chan int]{Name: "k", ID: func(chan int) string { return "x" }}.Task(nil))}},
		`"other": there is no such`:   {q, []worker.Recurring{worker.Every("@daily", tick, worker.Within("other"))}},
		"the source is no Recurrer":   {newFake("q"), []worker.Recurring{worker.Every("@daily", tick)}},
		`two recurring tasks "tick"`:  {q, []worker.Recurring{worker.Every("@daily", tick), worker.Every("@hourly", tick, worker.Within("q"))}},
		"schedule \"9999999999999999": {q, []worker.Recurring{worker.Every(strings.Repeat("9", 1000), tick)}},
	} {
		err := worker.New(done, worker.Config{Recurring: c.recurring}, c.source).Run(ctx)
		if !errors.Is(err, worker.ErrInvalid) || !strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), "worker: ") {
			t.Errorf("got %v, want ErrInvalid with %q", err, says)
		}
	}
}
