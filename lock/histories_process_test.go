package lock_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
)

// processEnv, if set, makes this binary a process that uses a lock; it holds
// what that is told.
const processEnv = "DULY_LOCK_PROCESS"

// A program is what a process is told.
type program struct {
	Name   string // "play" or "add"
	ID     int
	Seed   uint64
	Socket string
	Fenced bool // of an adder
	Pauses int  // of an adder
}

// A process is one under way. It reads lines and writes lines.
type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

// spawn starts a process. It ends with the test.
func (p program) spawn(t *testing.T) *process {
	t.Helper()
	told, err := json.Marshal(p)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), processEnv+"="+string(told))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &process{cmd, in, bufio.NewScanner(out)}
}

func (p *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Error(err)
	}
}

// untilStopped returns when the process has been stopped by a signal.
func (p *process) untilStopped(t *testing.T) {
	t.Helper()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		t.Fatalf("the process has ended: %v, %v", status, err)
	}
}

// processMain runs the program of a process.
func processMain() int {
	var p program
	if err := json.Unmarshal([]byte(os.Getenv(processEnv)), &p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	redis.SetLogger(silent{})
	w := new(wire)
	client := w.client(p.Socket)
	defer func() { _ = client.Close() }()
	locker, err := lock.New(client, pollOften)
	switch {
	case err != nil:
	case p.Name == "play":
		p.play(locker, w)
	case p.Name == "add":
		err = p.add(locker)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// inputEnds becomes true when standard input ends.
func inputEnds() *atomic.Bool {
	ended := new(atomic.Bool)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	return ended
}

// A played is a line of what a player writes: an op, or at last how long its
// slowest script took.
type played struct {
	Op      op
	Slowest time.Duration
}

// play makes a history until standard input ends, and writes it to standard
// output. Its times are the machine's, for they meet those of other processes.
func (p program) play(locker *lock.Locker, w *wire) {
	ended, lines := inputEnds(), json.NewEncoder(os.Stdout)
	one := &player{
		id: p.ID, name: "history", locker: locker, wires: []*wire{w},
		rng: rand.New(rand.NewPCG(p.Seed, uint64(p.ID))), now: time.Time.UnixNano,
		habits: habits{Waits: 0.5, Forgets: 0.02, Oversits: 0.02},
		log:    func(o op) { _ = lines.Encode(played{Op: o}) },
	}
	one.play(context.Background(), func() bool { return !ended.Load() })
	_ = lines.Encode(played{Slowest: slowestOf(one.wires)})
}

// A process that is stopped takes no notice of its lease. What it does when it
// goes on must be told from what a holder does.
func TestHistoriesOfStoppedProcessesAreLegal(t *testing.T) {
	t.Parallel()
	const processes, pauses = 5, 20
	seed := uint64(number(t, "DULY_SEED", int(time.Now().UnixNano()>>10)))
	t.Logf("DULY_SEED=%d", seed)
	server := redistest.Start(t)
	pulses := []*pulse{feel(t.Context(), server.Client())}
	var (
		mu   sync.Mutex
		ops  []op
		late atomic.Int32 // answers that a lease was over
		slow longest
		all  sync.WaitGroup
	)
	for id := range processes {
		p := program{Name: "play", ID: id + 1, Seed: seed, Socket: server.Socket}.spawn(t)
		all.Go(func() {
			for p.out.Scan() {
				var line played
				if err := json.Unmarshal(p.out.Bytes(), &line); err != nil {
					t.Errorf("%v: %s", err, p.out.Bytes())
				}
				slow.note(line.Slowest)
				o := line.Op
				if o.Answer == lost || o.Answer == expired {
					late.Add(1)
				}
				mu.Lock()
				ops = append(ops, o)
				mu.Unlock()
			}
		})
		all.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(id)<<32))
			for i := 0; i < pauses || late.Load() == 0 && i < 10*pauses; i++ {
				<-time.After(50*time.Millisecond + time.Duration(rng.Int64N(int64(100*time.Millisecond))))
				p.signal(t, syscall.SIGSTOP)
				<-time.After(longestTTL + time.Duration(rng.Int64N(int64(longestTTL))))
				p.signal(t, syscall.SIGCONT)
			}
			_ = p.in.Close()
		})
	}
	all.Wait()
	if slow.load() == 0 {
		t.Error("no process tells how long its slowest script took")
	}
	ops = measured(ops, lag(slow.load(), pulses))
	check(t, "as a mutex", mutex, ops)
	check(t, "as a fenced mutex", fenced, ops)

	t.Logf("%d operations, at least %d pauses, %d leases found over", len(ops), processes*pauses, late.Load())
	if late.Load() == 0 {
		t.Error("the story is not told: no pause outlasted a lease")
	}
}
