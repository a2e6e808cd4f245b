package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// workerCommand is the sub-command that makes this program a worker.
const workerCommand = "worker"

// An assignment tells a worker process what to work on. It comes as a line of
// JSON on its standard input, not as arguments, for a database's URL has a
// password in it.
type assignment struct {
	RedisURL string
	Queue    string
	Place    place
	Log      string
	Lease    time.Duration
	Fail     int
}

// ready is what a worker says when it can take tasks.
const ready = "ready\n"

// work is the main function of a worker process. It ends when its standard input
// does: the parent holds the other end, so no worker outlives it, whatever it
// dies of.
func work(stdin io.Reader, stdout io.Writer) error {
	signal.Ignore(os.Interrupt) // Ctrl-C reaches the whole group; the parent decides
	input := json.NewDecoder(stdin)
	var a assignment
	if err := input.Decode(&a); err != nil {
		return fmt.Errorf("read the assignment: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
		// Redis or the database may have died with the parent, and with them
		// what a drain waits for.
		time.AfterFunc(drainTimeout+cancelTimeout+time.Second, func() { os.Exit(1) })
	}()
	return a.run(ctx, stdout)
}

// How long a worker process takes to end.
const (
	drainTimeout  = 2 * time.Second
	cancelTimeout = time.Second
)

func (a *assignment) run(ctx context.Context, stdout io.Writer) (err error) {
	rdb, err := openRedis(a.RedisURL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rdb.Close()) }()
	tasks, err := queue.New(rdb, a.Queue, queue.Config{})
	if err != nil {
		return err
	}
	db, err := a.Place.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	log, err := openRunLog(a.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.close()) }()

	mux := duly.NewMux()
	mux.Use(log.record)
	register(mux, &shop{store: db}, carrier{fail: a.Fail})
	if _, err := io.WriteString(stdout, ready); err != nil {
		return fmt.Errorf("report for work: %w", err)
	}
	return worker.New(mux, worker.Config{
		Concurrency: 12, Lease: a.Lease, Backoff: worker.Exponential(100*time.Millisecond, 2*time.Second),
		DrainTimeout: drainTimeout, CancelTimeout: cancelTimeout, Recurring: schedule(),
	}, tasks).Run(ctx)
}
