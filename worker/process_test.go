package worker_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/zap"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// processEnv, if set, makes this binary a worker process; it holds what that is
// told.
const processEnv = "DULY_WORKER_PROCESS"

// A process is what a worker process is told.
type process struct {
	Tasks, Log string // sockets of two Redis servers: that of the queue, and one that nothing befalls
	Slots      int
	Lease      time.Duration
	MaxCrashes int
	Every      string // the schedule of a recurring task, if any
	Logbook    string // file of the runs of exclusive tasks, if those are to be run
}

// A child is a worker process under way.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
}

// spawn starts a worker process and waits until it is about to run. It ends with
// the test, and with this process.
func (p process) spawn(t *testing.T) *child {
	t.Helper()
	told, err := json.Marshal(p)
	must(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), processEnv+"="+string(told))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	_, err = bufio.NewReader(stdout).ReadString('\n')
	must(t, err)
	return &child{cmd, stdin}
}

// kill ends a process as the kernel does when memory runs out.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// freeze stops a process, and returns when all its threads stand still: the signal
// alone leaves them a moment.
func (c *child) freeze(t *testing.T) {
	t.Helper()
	must(t, c.cmd.Process.Signal(syscall.SIGSTOP))
	eventually(t, "the process stands still", 10*time.Second, func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", c.cmd.Process.Pid))
		must(t, err)
		return !slices.ContainsFunc(threads, func(path string) bool {
			stat, err := os.ReadFile(path)
			return err == nil && !strings.Contains(string(stat), ") T ")
		})
	})
}

// stop lets a process drain, and waits for its end.
func (c *child) stop(t *testing.T) {
	t.Helper()
	_ = c.stdin.Close()
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("worker process: %v", err)
	}
}

// open opens the queue and the log of a process, for it and for its test.
func (p process) open() (q *queue.Queue, tasks, log *redis.Client, err error) {
	dial := func(socket string) *redis.Client {
		return redis.NewClient(&redis.Options{
			Network: "unix", Addr: socket,
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		})
	}
	tasks, log = dial(p.Tasks), dial(p.Log)
	q, err = queue.New(tasks, "tasks", queue.Config{MaxCrashes: p.MaxCrashes})
	return q, tasks, log, err
}

// processMain runs a worker until its standard input ends.
func processMain() int {
	var p process
	if err := json.Unmarshal([]byte(os.Getenv(processEnv)), &p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	q, tasks, log, err := p.open()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer func() { _, _ = tasks.Close(), log.Close() }()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	fmt.Println("ready")
	cfg := worker.Config{Concurrency: p.Slots, Lease: p.Lease, Logger: zap.NewNop()}
	if p.Every != "" {
		cfg.Recurring = []worker.Recurring{worker.Every(p.Every, duly.Task{ID: "tick", Kind: "takes", Payload: []byte("60ms")})}
	}
	mux, source := effects(log), worker.Source(witness{q, log})
	if p.Logbook != "" {
		mux, source = exclusives(p.Logbook), q
	}
	if err := worker.New(mux, cfg, source).Run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A witness is a queue that tells the log what was acked.
type witness struct {
	*queue.Queue
	log *redis.Client
}

func (w witness) Settle(ctx context.Context, ss []duly.Settlement) ([]*duly.Delivery, error) {
	lost, err := w.Queue.Settle(ctx, ss)
	if err != nil {
		return lost, err
	}
	gone := make(map[*duly.Delivery]bool)
	for _, d := range lost {
		gone[d] = true
	}
	for i := range ss {
		if ss[i].Action == duly.Acked && !gone[ss[i].Delivery] {
			w.log.RPush(context.WithoutCancel(ctx), "acks", ss[i].Delivery.ID)
		}
	}
	return lost, nil
}

// effect writes down a run with the log server's clock.
var effect = redis.NewScript(`
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
return redis.call('RPUSH', 'runs', ARGV[1] .. ' ' .. now)`)

// effects are the handlers of a worker process. Each begins with a line in the
// log.
func effects(log *redis.Client) *duly.Mux {
	mux := duly.NewMux()
	mux.Use(func(next duly.Handler) duly.Handler {
		return handler(func(ctx context.Context, d *duly.Delivery) error {
			line := fmt.Sprint(d.ID, " ", d.Attempt, " ", d.Crashes, " ", d.Due.UnixMicro(), " ", d.Popped.UnixMicro())
			if err := effect.Run(ctx, log, nil, line).Err(); err != nil {
				return err
			}
			return next.HandleTask(ctx, d)
		})
	})
	mux.HandleFunc("quick", func(context.Context, *duly.Delivery) error {
		time.Sleep(rand.N(4 * time.Millisecond))
		return nil
	})
	mux.HandleFunc("fails", func(_ context.Context, d *duly.Delivery) error {
		if d.Attempt < 2 {
			return duly.RetryIn(20*time.Millisecond, errBoom)
		}
		return nil
	})
	mux.HandleFunc("takes", func(_ context.Context, d *duly.Delivery) error {
		takes, err := time.ParseDuration(string(d.Payload))
		time.Sleep(takes)
		return err
	})
	mux.HandleFunc("hold", func(ctx context.Context, _ *duly.Delivery) error {
		<-ctx.Done()
		return ctx.Err()
	})
	mux.HandleFunc("told", func(ctx context.Context, d *duly.Delivery) error {
		<-ctx.Done()
		_ = log.RPush(context.WithoutCancel(ctx), "told", fmt.Sprint(d.ID, " ", context.Cause(ctx))).Err()
		return ctx.Err()
	})
	mux.HandleFunc("poison", func(context.Context, *duly.Delivery) error {
		time.Sleep(30 * time.Millisecond) // what is due with it has begun and is taken along
		os.Exit(3)
		return nil
	})
	return mux
}

// A logged is a line of the log.
type logged struct {
	id               string
	attempt, crashes int
	due, popped, at  time.Time
}

// A scene is what a crash test works with.
type scene struct {
	process
	*queue.Queue
	log *redis.Client
}

func newScene(t *testing.T, p process) *scene {
	t.Helper()
	p.Tasks, p.Log = redistest.Start(t).Socket, redistest.Start(t).Socket
	q, tasks, log, err := p.open()
	must(t, err)
	t.Cleanup(func() { _, _ = tasks.Close(), log.Close() })
	return &scene{p, q, log}
}

// runs reads the log.
func (s *scene) runs(t *testing.T) []logged {
	t.Helper()
	lines, err := s.log.LRange(t.Context(), "runs", 0, -1).Result()
	must(t, err)
	runs := make([]logged, 0, len(lines))
	for _, line := range lines {
		words := strings.Fields(line)
		n := make([]int64, len(words))
		for i := 1; i < len(words); i++ {
			n[i], err = strconv.ParseInt(words[i], 10, 64)
			must(t, err)
		}
		runs = append(runs, logged{
			id: words[0], attempt: int(n[1]), crashes: int(n[2]),
			due: time.UnixMicro(n[3]), popped: time.UnixMicro(n[4]), at: time.UnixMicro(n[5]),
		})
	}
	return runs
}

// empty reports whether nothing is due or leased.
func (s *scene) empty(t *testing.T) bool {
	t.Helper()
	stats, err := s.Stats(t.Context())
	must(t, err)
	return stats.Due+stats.Leased == 0
}
