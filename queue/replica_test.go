package queue_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// replicated returns a queue whose tasks are to be on a replica, and that replica.
func replicated(t *testing.T) (r *rig, master, replica *redistest.Server) {
	t.Helper()
	main, master := onOwnRedis(t, "--repl-diskless-sync-delay", "0")
	host, port, err := net.SplitHostPort(master.Addr)
	must(t, err)
	replica = redistest.Start(t, "--replicaof", host+" "+port)
	for deadline := time.Now().Add(20 * time.Second); main.Do(t.Context(), "wait", 1, 100).Val() != int64(1); {
		if time.Now().After(deadline) {
			t.Fatal("the replica does not follow, after 20 s")
		}
	}
	return main.another(t, queue.Config{ReplicaAcks: 1}), master, replica
}

func TestATaskThatIsEnqueuedIsOnTheReplica(t *testing.T) {
	t.Parallel()
	r, _, replica := replicated(t)
	client := replica.Client()
	for i := range 50 {
		id := fmt.Sprint("task-", i)
		r.enqueue(t, id)
		must(t, client.ZScore(t.Context(), r.key("due"), id).Err())
		must(t, client.HGet(t.Context(), r.key("task"), id).Err())
	}
}

// A replica that hangs has confirmed nothing: neither the task nor, when it is
// enqueued again over another connection that writes nothing, what is there already.
func TestATaskThatNoReplicaHasIsNotConfirmedUntilOneHas(t *testing.T) {
	t.Parallel()
	r, _, replica := replicated(t)
	r.enqueue(t, "before")
	replica.Signal(syscall.SIGSTOP)
	other := newQueue(t, r.client(t, new(link)), r.name, queue.Config{ReplicaAcks: 1})
	for _, q := range []*queue.Queue{r.q, other, r.q} {
		began := time.Now()
		receipt, err := q.Enqueue(t.Context(), task("x"))
		wants(t, err, queue.ErrUnreplicated)
		if errors.Is(err, queue.ErrUnknownOutcome) || receipt.ID != "x" {
			t.Errorf("receipt %+v, %v", receipt, err)
		}
		if took := time.Since(began); took < 900*time.Millisecond || took > 10*time.Second {
			t.Errorf("it was waited for %v, want a second", took)
		}
		r.wantState(t, queue.Due, "x")
	}
	receipts, err := other.EnqueueMany(t.Context(), []duly.Task{task("y"), task("x")})
	wants(t, err, queue.ErrUnreplicated)
	for _, receipt := range receipts {
		wants(t, receipt.Err, queue.ErrUnreplicated)
	}
	_, err = other.Recur(t.Context(), hourly("tick", "1"), in(time.Hour))
	wants(t, err, queue.ErrUnreplicated)
	replica.Signal(syscall.SIGCONT)
	receipt, err := other.Enqueue(t.Context(), task("x"))
	must(t, err)
	equal(t, "outcome", receipt.Outcome, queue.Kept)
	must(t, replica.Client().ZScore(t.Context(), r.key("due"), "y").Err())
}

// The master dies while tasks are enqueued, and the replica takes its place. What was
// confirmed is there.
func TestWhatIsConfirmedOutlastsAFailover(t *testing.T) {
	t.Parallel()
	r, master, replica := replicated(t)
	var mu sync.Mutex
	var confirmed []string
	var callers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for c := range 8 {
		callers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprint("task-", c, "-", i)
				if _, err := r.q.Enqueue(ctx, task(id)); err == nil {
					mu.Lock()
					confirmed = append(confirmed, id)
					mu.Unlock()
				}
			}
		})
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		mu.Lock()
		n := len(confirmed)
		mu.Unlock()
		if n >= 300 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d tasks were confirmed in 20 s", n)
		}
	}
	master.Kill()
	cancel()
	callers.Wait()
	client := replica.Client()
	must(t, client.Do(t.Context(), "replicaof", "no", "one").Err())
	for _, id := range confirmed {
		if err := client.ZScore(t.Context(), r.key("due"), id).Err(); err != nil {
			t.Fatalf("%s, of %d: %v", id, len(confirmed), err)
		}
	}
	master.Restart() // for the check of the keys
}

func TestWithoutReplicasNothingIsConfirmed(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"redis", "cluster"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, share(t, kind)).another(t, queue.Config{ReplicaAcks: 1})
			_, err := r.q.EnqueueMany(t.Context(), []duly.Task{task("x")})
			wants(t, err, queue.ErrUnreplicated)
			r.wantState(t, queue.Due, "x")
		})
	}
}
