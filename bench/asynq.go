package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// asynqTick is how often a tuned asynq looks for tasks: often enough that the
// whole seconds in which it keeps due times decide, seldom enough to cost Redis
// little.
const asynqTick = 10 * time.Millisecond

// asynqSystem is asynq, either with every setting left at its default,
// concurrency and log level aside, or tuned.
type asynqSystem struct{ tuned bool }

func (s asynqSystem) name() string {
	if s.tuned {
		return "asynq-tuned"
	}
	return "asynq"
}

func (asynqSystem) kind() serverKind { return onRedis }

func (s asynqSystem) open(_ context.Context, addr string) (session, error) {
	opt := asynq.RedisClientOpt{Addr: addr}
	return &asynqSession{tuned: s.tuned, opt: opt, client: asynq.NewClient(opt), rdb: newRedisClient(addr)}, nil
}

type asynqSession struct {
	tuned  bool
	opt    asynq.RedisClientOpt
	client *asynq.Client
	rdb    *redis.Client // looks at keys, and opens no connection before it does
}

func (s *asynqSession) enqueue(ctx context.Context, t task) error {
	opts := []asynq.Option{asynq.TaskID(t.id)}
	if !t.due.IsZero() {
		opts = append(opts, asynq.ProcessAt(t.due))
	}
	_, err := s.client.EnqueueContext(ctx, asynq.NewTask("bench", t.payload), opts...)
	return err
}

func (s *asynqSession) enqueueMany(context.Context, []task) error { return errNoBatch }
func (s *asynqSession) batches() bool                             { return false }

// work gives a tuned server short intervals, and no pause before a task whose
// worker has died runs again.
func (s *asynqSession) work(_ context.Context, concurrency int, h handler) (func() error, error) {
	cfg := asynq.Config{Concurrency: concurrency, LogLevel: asynq.FatalLevel}
	if s.tuned {
		cfg.TaskCheckInterval, cfg.DelayedTaskCheckInterval = asynqTick, asynqTick
		cfg.RetryDelayFunc = func(n int, err error, t *asynq.Task) time.Duration {
			if errors.Is(err, asynq.ErrLeaseExpired) {
				return 0
			}
			return asynq.DefaultRetryDelayFunc(n, err, t)
		}
	}
	server := asynq.NewServer(s.opt, cfg)
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, t *asynq.Task) error {
		h(t.ResultWriter().TaskID())
		return nil
	}))
	return func() error { server.Shutdown(); return nil }, err
}

// asynqKey spells the keys of the queue that asynq uses by default.
func asynqKey(of string) string { return "asynq:{default}:" + of }

func (s *asynqSession) unsettled(ctx context.Context) (int, error) {
	pipe := s.rdb.Pipeline()
	counts := []*redis.IntCmd{
		pipe.LLen(ctx, asynqKey("pending")), pipe.LLen(ctx, asynqKey("active")),
		pipe.ZCard(ctx, asynqKey("scheduled")), pipe.ZCard(ctx, asynqKey("retry")), pipe.ZCard(ctx, asynqKey("archived")),
	}
	_, err := pipe.Exec(ctx)
	n := int64(0)
	for _, c := range counts {
		n += c.Val()
	}
	return int(n), err
}

// backlog adds tasks that are due far ahead as copies of one that asynq itself
// has stored, for it would take minutes to store a million.
func (s *asynqSession) backlog(ctx context.Context, tasks []task) error {
	first := tasks[0].id
	if err := s.enqueue(ctx, tasks[0]); err != nil {
		return err
	}
	fields, err := s.rdb.HGetAll(ctx, asynqKey("t:"+first)).Result()
	if err != nil {
		return err
	}
	message := []byte(fields["msg"])
	if !bytes.Contains(message, []byte(first)) {
		return fmt.Errorf("asynq: no ID in its message %q", message)
	}
	for tasks = tasks[1:]; len(tasks) > 0; {
		n := min(len(tasks), 1000)
		pipe := s.rdb.Pipeline()
		due := make([]redis.Z, n)
		for i, t := range tasks[:n] {
			due[i] = redis.Z{Score: float64(t.due.Unix()), Member: t.id}
			own := bytes.ReplaceAll(message, []byte(first), []byte(t.id))
			args := make([]any, 0, 2*len(fields))
			for name, value := range fields {
				if name == "msg" {
					args = append(args, name, own)
				} else {
					args = append(args, name, value)
				}
			}
			pipe.HSet(ctx, asynqKey("t:"+t.id), args...)
		}
		pipe.ZAdd(ctx, asynqKey("scheduled"), due...)
		if _, err := pipe.Exec(ctx); err != nil {
			return err
		}
		tasks = tasks[n:]
	}
	return nil
}

func (s *asynqSession) close() error { return errors.Join(s.client.Close(), s.rdb.Close()) }
