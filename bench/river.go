package main

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// riverSystem is River on PostgreSQL with every setting left at its default,
// concurrency and log level aside; tuned, it fetches as often as it can.
type riverSystem struct{ tuned bool }

func (s riverSystem) name() string {
	if s.tuned {
		return "river-tuned"
	}
	return "river"
}

func (riverSystem) kind() serverKind { return onPostgres }

func (s riverSystem) open(ctx context.Context, addr string) (session, error) {
	pool, err := pgxpool.New(ctx, addr)
	if err != nil {
		return nil, err
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: riverLogger()})
	if err != nil {
		pool.Close()
		return nil, err
	}
	return &riverSession{s.tuned, pool, client}, nil
}

// riverLogger drops what River logs, such as that no worker is registered.
func riverLogger() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// riverArgs are payloadSize bytes as JSON.
type riverArgs struct {
	ID   string `json:"id"`
	Text string `json:"data"`
}

// Kind names the job for River.
func (riverArgs) Kind() string { return "bench" }

type riverSession struct {
	tuned  bool
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

func riverJob(t task) (riverArgs, *river.InsertOpts, error) {
	var args riverArgs
	if err := json.Unmarshal(t.payload, &args); err != nil {
		return args, nil, err
	}
	args.ID = t.id
	return args, &river.InsertOpts{ScheduledAt: t.due}, nil
}

func (s *riverSession) enqueue(ctx context.Context, t task) error {
	args, opts, err := riverJob(t)
	if err != nil {
		return err
	}
	_, err = s.client.Insert(ctx, args, opts)
	return err
}

// enqueueMany uses the call that answers for each job, as duly's does.
func (s *riverSession) enqueueMany(ctx context.Context, tasks []task) error {
	params, err := riverParams(tasks)
	if err != nil {
		return err
	}
	_, err = s.client.InsertMany(ctx, params)
	return err
}

func riverParams(tasks []task) ([]river.InsertManyParams, error) {
	params := make([]river.InsertManyParams, len(tasks))
	for i, t := range tasks {
		args, opts, err := riverJob(t)
		if err != nil {
			return nil, err
		}
		params[i] = river.InsertManyParams{Args: args, InsertOpts: opts}
	}
	return params, nil
}

// load copies jobs into the table.
func (s *riverSession) load(ctx context.Context, tasks []task) error {
	for first := 0; first < len(tasks); first += 10_000 {
		params, err := riverParams(tasks[first:min(first+10_000, len(tasks))])
		if err != nil {
			return err
		}
		if _, err := s.client.InsertManyFast(ctx, params); err != nil {
			return err
		}
	}
	return nil
}

type riverWorker struct {
	river.WorkerDefaults[riverArgs]
	handle handler
}

// Work runs a job.
func (w *riverWorker) Work(_ context.Context, job *river.Job[riverArgs]) error {
	w.handle(job.Args.ID)
	return nil
}

func (s *riverSession) work(ctx context.Context, concurrency int, h handler) (func() error, error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &riverWorker{handle: h})
	cfg := &river.Config{
		Logger: riverLogger(), Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: concurrency}},
	}
	if s.tuned {
		cfg.FetchCooldown, cfg.FetchPollInterval = river.FetchCooldownMin, 10*time.Millisecond
	}
	client, err := river.NewClient(riverpgxv5.New(s.pool), cfg)
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 20*time.Second)
		defer cancel()
		return client.Stop(ctx)
	}, nil
}

func (s *riverSession) unsettled(ctx context.Context) (int, error) {
	var n int
	err := s.pool.QueryRow(ctx, "SELECT count(*) FROM river_job WHERE state <> 'completed'").Scan(&n)
	return n, err
}

func (s *riverSession) batches() bool { return true }

func (s *riverSession) close() error {
	s.pool.Close()
	return nil
}
