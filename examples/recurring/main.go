// Command recurring shows tasks that recur: one schedule, run by several workers of
// which none is the leader, that come, go and change it. It needs no Redis and is
// done in seconds.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// SweepArgs say what is swept.
type SweepArgs struct{ What string }

// Sweep recurs, so it has an ID that stays the same: a second one of it is no
// second task.
var Sweep = duly.Kind[SweepArgs]{
	Name: "sweep",
	ID:   func(a SweepArgs) string { return "sweep:" + a.What },
}

// beat is short, for a show. Most schedules are like "CRON_TZ=Europe/Berlin 30 2 * * *".
const beat = 300 * time.Millisecond

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run plays the show.
func run(ctx context.Context, out io.Writer) error {
	server, err := miniredis.Run()
	if err != nil {
		return err
	}
	defer server.Close()
	s := &show{out: out, addr: server.Addr(), ran: make(chan string, 100)}
	q, end, err := s.open()
	if err != nil {
		return err
	}
	defer end()

	s.say("Three workers are started with the same schedule, a sweep every %v.", beat)
	crew := []func() error{s.hire(ctx, "a", beat), s.hire(ctx, "b", beat), s.hire(ctx, "c", beat)}
	for range 4 {
		s.say("  %s", <-s.ran)
	}
	stats, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	s.say("It is one task in the queue: %d due or running.", stats.Due+stats.Leased)

	s.say("All three stop for a second; three ticks pass.")
	for _, stop := range crew {
		if err := stop(); err != nil {
			return err
		}
	}
	time.Sleep(time.Second)
	s.say("Another worker makes up for them, once, and is in step again:")
	stop := s.hire(ctx, "d", beat)
	for range 3 {
		s.say("  %s", <-s.ran)
	}

	s.say("A worker of the next release has the same task by another schedule, %v:", 2*beat)
	next := s.hire(ctx, "e", 2*beat)
	if err := s.until(ctx, q, func(i queue.Info) bool { return i.Every == "@every "+(2*beat).String() }); err != nil {
		return err
	}
	info, err := q.Get(ctx, "sweep:baskets")
	if err != nil {
		return err
	}
	s.say("  %s, every %q", info.ID, strings.TrimPrefix(info.Every, "@every "))

	s.say("It is cancelled.")
	if _, err := q.Cancel(ctx, "sweep:baskets"); err != nil {
		return err
	}
	if err := s.until(ctx, q, func(i queue.Info) bool { return i.State == queue.Missing }); err != nil {
		return err
	}
	s.say("  It is gone.")
	return errors.Join(stop(), next())
}

// A show is what the workers have in common.
type show struct {
	addr string
	ran  chan string // what they did

	mu  sync.Mutex // guards out
	out io.Writer
}

func (s *show) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintf(s.out, format+"\n", args...)
}

// open opens the queue as a process of its own would.
func (s *show) open() (q *queue.Queue, end func(), err error) {
	rdb := redis.NewClient(&redis.Options{Addr: s.addr})
	q, err = queue.New(rdb, "shop", queue.Config{})
	return q, func() { _ = rdb.Close() }, err
}

// hire starts a worker that keeps the sweep in the queue and runs it.
func (s *show) hire(ctx context.Context, name string, interval time.Duration) (stop func() error) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- s.work(ctx, name, interval) }()
	return func() error {
		cancel()
		return <-ended
	}
}

func (s *show) work(ctx context.Context, name string, interval time.Duration) error {
	q, end, err := s.open()
	if err != nil {
		return err
	}
	defer end()
	mux := duly.NewMux()
	Sweep.Handle(mux, func(_ context.Context, a SweepArgs, d *duly.Delivery) error {
		late := d.Popped.Sub(d.Due)
		remark := "on time"
		if late >= beat/2 {
			remark = "late by " + late.Round(100*time.Millisecond).String()
		}
		s.ran <- fmt.Sprintf("%s sweeps the %s, %s", name, a.What, remark)
		return nil
	})
	return worker.New(mux, worker.Config{
		Recurring: []worker.Recurring{worker.Every("@every "+interval.String(), Sweep.Task(SweepArgs{What: "baskets"}))},
	}, q).Run(ctx)
}

// until waits until the sweep is as wanted.
func (s *show) until(ctx context.Context, q *queue.Queue, wanted func(queue.Info) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		info, err := q.Get(ctx, "sweep:baskets")
		if err != nil || wanted(info) {
			return err
		}
		time.Sleep(beat / 10)
	}
}

// Output:
// Three workers are started with the same schedule, a sweep every 300ms.
//   … sweeps the baskets, …
//   … sweeps the baskets, …
//   … sweeps the baskets, …
//   … sweeps the baskets, …
// It is one task in the queue: 1 due or running.
// All three stop for a second; three ticks pass.
// Another worker makes up for them, once, and is in step again:
// …
//   d sweeps the baskets, late by …
// …
// A worker of the next release has the same task by another schedule, 600ms:
//   sweep:baskets, every "600ms"
// It is cancelled.
//   It is gone.
