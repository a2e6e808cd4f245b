package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dulyhq/duly/lock/redistest"
)

// asProgram makes the test binary the program itself.
const asProgram = "FLASHSALE_TEST_AS_PROGRAM"

// TestMain lets the sales under test re-execute this binary as their workers.
func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" || len(os.Args) > 1 && os.Args[1] == workerCommand {
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

// small is a sale that takes seconds.
var small = []string{
	"-buyers", "500", "-phones", "5", "-earphones", "40", "-rush", "200ms", "-deadline", "500ms", "-lease", "1s", "-json",
}

// holdSmall holds a small sale with the environment as it is, and checks that it
// was safe, that it added up, and that it left no file behind.
func holdSmall(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var stdout, stderr bytes.Buffer
	if status := sell(t.Context(), small, &stdout, &stderr); status != exitSafe {
		t.Fatalf("exit status %d\n%s\n%s", status, &stdout, &stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	var r report
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &r); err != nil {
		t.Fatalf("last line is no JSON: %v\n%s", err, &stdout)
	}
	for _, c := range []struct {
		what      string
		got, want int
	}{
		{"stock", r.Stock, 45},
		{"buyers", r.Buyers, 500},
		{"accepted and sold out", r.Accepted + r.SoldOut, 500},
		{"paid", r.Paid, 45},
		{"shipped", r.Shipped, 45},
		{"cancelled", r.Cancelled, r.Accepted - 45},
		{"phones shipped", r.Items[0].Shipped, 5},
		{"buyers untold of their parcels", r.Untold, 0},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", c.what, c.got, c.want)
		}
	}
	if r.Audits < 1 {
		t.Errorf("the stock was audited %d times in %v s", r.Audits, r.Duration)
	}
	if r.Crashes < 2 {
		t.Errorf("crashes %d: the kill took nothing from the worker", r.Crashes)
	}
	if r.P50 > r.P99 || r.P99 > r.Max || r.Max <= 0 || r.Duration <= 0 {
		t.Errorf("lateness %v, %v, %v ms in %v s", r.P50, r.P99, r.Max, r.Duration)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestSaleOnTheEmbeddedRedisAndSQLite(t *testing.T) {
	t.Setenv("REDIS_URL", "")
	t.Setenv("DATABASE_URL", "")
	holdSmall(t)
}

func TestSaleOnARealRedisLeavesNoKey(t *testing.T) {
	server := redistest.Start(t)
	t.Setenv("REDIS_URL", "redis://"+server.Addr)
	t.Setenv("DATABASE_URL", "")
	holdSmall(t)
	if n, err := server.Client().DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("%d keys left, %v", n, err)
	}
}

func TestSaleOnPostgreSQL(t *testing.T) {
	if os.Getenv("DATABASE_URL") == "" {
		t.Skip("skipped: needs DATABASE_URL")
	}
	t.Setenv("REDIS_URL", "redis://"+redistest.Start(t).Addr)
	holdSmall(t)
}

// startProgram starts a sale of a length that no test waits for, in a process of
// its own, and waits until its shop is open.
func startProgram(t *testing.T) *exec.Cmd {
	t.Helper()
	children := "/proc/self/task"
	if _, err := os.Stat(children); err != nil {
		t.Skip("skipped: finds child processes in /proc")
	}
	cmd := exec.Command(os.Args[0], "-deadline", "1m", "-buyers", "50", "-phones", "1", "-earphones", "1")
	cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+t.TempDir(), "REDIS_URL=", "DATABASE_URL=")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	open := make(chan error, 1)
	go func() { // reads on, so that the program never waits for a reader
		buf := make([]byte, 4096)
		var seen []byte
		for {
			n, err := stderr.Read(buf)
			seen = append(seen, buf[:n]...)
			if bytes.Contains(seen, []byte("live page")) || err != nil {
				select {
				case open <- err:
				default:
				}
			}
			if err != nil {
				return
			}
		}
	}()
	if err := <-open; err != nil {
		t.Fatalf("the program did not open its shop: %v", err)
	}
	return cmd
}

// childrenOf lists the processes that a process has started.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	tasks, err := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, task := range tasks {
		text, _ := os.ReadFile(task) // a thread may have ended
		for _, field := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(field)
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, child)
		}
	}
	return pids
}

// awaitGone waits until processes have ended.
func awaitGone(t *testing.T, pids []int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	for _, pid := range pids {
		for running(pid) {
			if sleep(ctx, 10*time.Millisecond) {
				t.Fatalf("process %d is still there", pid)
			}
		}
	}
}

// running reports whether a process is there and no zombie: where nobody adopts
// orphans they stay as such.
func running(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false
	}
	_, after, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(after, "Z")
}

func TestCtrlCEndsTheSaleAndItsWorkers(t *testing.T) {
	t.Parallel()
	cmd := startProgram(t)
	workers := childrenOf(t, cmd.Process.Pid)
	if len(workers) != 3 {
		t.Fatalf("%d workers, want 3", len(workers))
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Errorf("ended with %v, want status %d", err, exitInterrupted)
	}
	awaitGone(t, workers)
}

func TestNoWorkerOutlivesAParentThatWasKilled(t *testing.T) {
	t.Parallel()
	cmd := startProgram(t)
	workers := childrenOf(t, cmd.Process.Pid)
	if len(workers) != 3 {
		t.Fatalf("%d workers, want 3", len(workers))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitGone(t, workers)
}

func TestASaleEndsIfAWorkerDiesByItself(t *testing.T) {
	t.Parallel()
	cmd := startProgram(t)
	workers := childrenOf(t, cmd.Process.Pid)
	if len(workers) != 3 {
		t.Fatalf("%d workers, want 3", len(workers))
	}
	worker, err := os.FindProcess(workers[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Kill(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitUnsafe {
		t.Errorf("ended with %v, want status %d", err, exitUnsafe)
	}
	awaitGone(t, workers)
}

func TestBadFlagsAreOneLineAndStatus2(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"-buyers -1", "-buyers 0", "-phones -1", "-earphones -1", "-unpaid 101", "-unpaid 60 -late 50", "-fail 91",
		"-workers 0", "-kill 3", "-kill -1", "-deadline 0s", "-deadline -2s", "-lease 1ms", "-rush -1s",
		"-deadline soon", "-nonsense", "extra",
	} {
		var stdout, stderr bytes.Buffer
		status := sell(t.Context(), strings.Fields(args), &stdout, &stderr)
		if status != exitUsage || strings.Count(stderr.String(), "\n") != 1 || stdout.Len() > 0 {
			t.Errorf("%s: status %d\n%s%s", args, status, &stdout, &stderr)
		}
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	if status := sell(t.Context(), []string{"-h"}, &stdout, &stderr); status != exitSafe || stderr.Len() > 0 {
		t.Errorf("status %d, stderr %q", status, &stderr)
	}
	for _, flag := range []string{"-buyers", "-deadline", "-json", "-kill", "DATABASE_URL", "REDIS_URL"} {
		if !strings.Contains(stdout.String(), flag) {
			t.Errorf("the help does not name %s", flag)
		}
	}
}
