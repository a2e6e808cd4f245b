package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// errNoBatch says that a system takes one task a call.
var errNoBatch = errors.New("no batch enqueue")

// A contender is what is compared: a system of tasks, or one of locks.
type contender interface {
	// name is its row in every table.
	name() string

	// kind is the server that it runs on.
	kind() serverKind
}

// A system is one of those that are compared at tasks.
type system interface {
	contender

	// open connects to a server, with the connections that the system's library
	// opens by default.
	open(ctx context.Context, addr string) (session, error)
}

// A serverKind is a server that a system needs.
type serverKind string

// The servers.
const (
	onRedis    serverKind = "redis-server"
	onPostgres serverKind = "PostgreSQL"
)

// A session is a system that is connected to a server.
type session interface {
	// enqueue adds one task by the call that a user has for one task.
	enqueue(ctx context.Context, t task) error

	// enqueueMany adds tasks that are due together by the call that a user has
	// for many. batches says whether there is one; otherwise it returns
	// errNoBatch.
	enqueueMany(ctx context.Context, tasks []task) error
	batches() bool

	// work starts a worker. stop ends it in good order.
	work(ctx context.Context, concurrency int, h handler) (stop func() error, err error)

	// unsettled counts the tasks that wait, run, or are to run again.
	unsettled(ctx context.Context) (int, error)

	// close disconnects.
	close() error
}

// A handler is what a worker does with a task.
type handler func(id string)

// A loader is a session that can add tasks faster than its users can: for what
// has to be there before something is measured.
type loader interface {
	load(ctx context.Context, tasks []task) error
}

// A task is what every system is given alike.
type task struct {
	id      string    // idSize bytes
	payload []byte    // payloadSize bytes
	due     time.Time // zero is now
}

const (
	idSize      = 12
	payloadSize = 80

	// loadCallers add tasks side by side to a system that takes them one by one.
	loadCallers = 64
)

// payload is a JSON text, for River takes nothing else.
var payload = []byte(fmt.Sprintf(`{"id":"%s","data":"%049d"}`, taskID('t', 0), 0))

// taskID spells a number as an ID. The tasks that are measured begin with 't',
// those that only lie there with 'b'.
func taskID(prefix byte, n int) string {
	var b [idSize]byte
	b[0] = prefix
	for i := idSize - 1; i > 0; i-- {
		b[i] = '0' + byte(n%10) //nolint:gosec // a digit
		n /= 10
	}
	return string(b[:])
}

// taskNumber is the number in the ID of a measured task, or -1.
func taskNumber(id string) int {
	if len(id) != idSize || id[0] != 't' {
		return -1
	}
	n := 0
	for i := 1; i < idSize; i++ {
		n = n*10 + int(id[i]-'0')
	}
	return n
}

// tasksOf makes tasks numbered from first, all due at the same time.
func tasksOf(prefix byte, first, n int, due time.Time) []task {
	tasks := make([]task, n)
	for i := range tasks {
		tasks[i] = task{id: taskID(prefix, first+i), payload: payload, due: due}
	}
	return tasks
}

// load adds tasks by the fastest way there is.
func load(ctx context.Context, s session, tasks []task) error {
	if fast, ok := s.(loader); ok {
		return fast.load(ctx, tasks)
	}
	if !s.batches() {
		return loadSingly(ctx, s, tasks)
	}
	for len(tasks) > 0 {
		n := 1
		for n < min(len(tasks), 1000) && tasks[n].due.Equal(tasks[0].due) {
			n++
		}
		if err := s.enqueueMany(ctx, tasks[:n]); err != nil {
			return err
		}
		tasks = tasks[n:]
	}
	return nil
}

func loadSingly(ctx context.Context, s session, tasks []task) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		next atomic.Int64
		wg   sync.WaitGroup
	)
	for range loadCallers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(tasks) {
					return
				}
				if err := s.enqueue(ctx, tasks[i]); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
