package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// invoke runs the tool against a Redis and returns what it printed.
func invoke(t *testing.T, addr, stdin string, args ...string) (status int, out, errs string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var stdout, stderr strings.Builder
	env := func(string) string { return "redis://:sesame@" + addr }
	status = run(ctx, args, env, strings.NewReader(stdin), &stdout, &stderr)
	if strings.Contains(stdout.String()+stderr.String(), "sesame") {
		t.Errorf("duly %v prints the password", args)
	}
	return status, stdout.String(), stderr.String()
}

// object runs the tool with -json and reads the one object that it answers.
func object(t *testing.T, addr string, args ...string) map[string]any {
	t.Helper()
	status, out, errs := invoke(t, addr, "", append([]string{"-json"}, args...)...)
	if status != 0 {
		t.Fatalf("duly %v: status %d: %s", args, status, errs)
	}
	var o map[string]any
	if err := json.Unmarshal([]byte(out), &o); err != nil {
		t.Fatalf("duly %v printed %q: %v", args, out, err)
	}
	return o
}

func TestCommandsOnARealRedis(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t, "--requirepass", "sesame").Addr
	commandsWork(t, addr)
}

func TestCommandsOnMiniredis(t *testing.T) {
	t.Parallel()
	m, _ := redistest.Mini(t)
	m.RequireAuth("sesame")
	commandsWork(t, m.Addr())
}

func commandsWork(t *testing.T, addr string) {
	t.Helper()
	if o := object(t, addr, "enqueue", "orders", "order.cancel", "-id", "a", "-in", "1h", "-payload", "p"); o["outcome"] != "added" {
		t.Errorf("enqueue: %v", o)
	}
	expires := []string{"enqueue", "orders", "k", "-id", "x", "-expires", "2200-01-01T00:00:00Z", "-on-expiry", "drop"}
	if o := object(t, addr, expires...); o["outcome"] != "added" {
		t.Errorf("enqueue with -expires: %v", o)
	}
	if o := object(t, addr, "get", "orders", "x"); o["expires"] != "2200-01-01T00:00:00.000000Z" || o["on_expiry"] != "drop" {
		t.Errorf("get x: %v", o)
	}
	if o := object(t, addr, "cancel", "orders", "x"); o["cancelled"] != true {
		t.Errorf("cancel x: %v", o)
	}
	if status, _, errs := invoke(t, addr, "from stdin", "enqueue", "orders", "k", "-id", "b", "-payload", "-"); status != 0 {
		t.Errorf("enqueue from stdin: %s", errs)
	}
	if o := object(t, addr, "get", "orders", "b", "-payload"); o["payload"] != "ZnJvbSBzdGRpbg==" {
		t.Errorf("get b: %v", o)
	}
	if o := object(t, addr, "get", "orders", "a"); o["state"] != "due" || o["payload"] != nil {
		t.Errorf("get a: %v", o)
	}
	if o := object(t, addr, "reschedule", "orders", "a", "-at", "2200-01-01T00:00:00Z"); o["rescheduled"] != true {
		t.Errorf("reschedule: %v", o)
	}
	if o := object(t, addr, "stats", "orders"); o["due"] != 2.0 || o["ready"] != 1.0 {
		t.Errorf("stats: %v", o)
	}
	if status, out, _ := invoke(t, addr, "", "list", "orders"); status != 0 || strings.Count(out, "\n") != 3 || !strings.Contains(out, "2200-01-01T00:00:00.000000Z") {
		t.Errorf("list: %s", out)
	}
	if o := object(t, addr, "cancel", "orders", "a"); o["cancelled"] != true {
		t.Errorf("cancel: %v", o)
	}
	if status, _, errs := invoke(t, addr, "", "get", "orders", "a"); status != 1 || !strings.Contains(errs, `no task "a"`) {
		t.Errorf("get of a missing task: %d %s", status, errs)
	}
	if status, _, _ := invoke(t, addr, "", "pause", "orders"); status != 0 || object(t, addr, "stats", "orders")["paused"] != true {
		t.Error("pause does not pause")
	}
	if status, _, _ := invoke(t, addr, "", "resume", "orders"); status != 0 || object(t, addr, "stats", "orders")["paused"] != false {
		t.Error("resume does not resume")
	}
}

func TestLimitSetsWhatIsGivenAndShowsAll(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t, "--requirepass", "sesame").Addr
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "none"},
		{[]string{"-running", "5"}, "5 running"},
		{[]string{"-rate", "0.5"}, "5 running, 0.5/s with a burst of 1"},
		{[]string{"-burst", "3"}, "5 running, 0.5/s with a burst of 3"},
		{[]string{"-rate", "1000"}, "5 running, 1000/s with a burst of 10"},
		{nil, "5 running, 1000/s with a burst of 10"},
		{[]string{"-running", "0"}, "1000/s with a burst of 10"},
		{[]string{"-rate", "0"}, "none"},
	} {
		status, out, errs := invoke(t, addr, "", append([]string{"limit", "orders"}, c.args...)...)
		if status != 0 || strings.TrimSpace(out) != c.want {
			t.Errorf("limit %v: status %d, printed %q and %q, want %q", c.args, status, out, errs, c.want)
		}
	}
	if o := object(t, addr, "limit", "orders", "-running", "2", "-rate", "7"); o["running"] != 2.0 || o["rate"] != 7.0 || o["burst"] != 1.0 {
		t.Errorf("limit: %v", o)
	}
	o := object(t, addr, "stats", "orders")
	if l, _ := o["limits"].(map[string]any); l["running"] != 2.0 || l["rate"] != 7.0 {
		t.Errorf("stats: %v", o)
	}
	if _, out, _ := invoke(t, addr, "", "stats", "orders"); !strings.Contains(out, "2 running, 7/s") {
		t.Errorf("stats: %s", out)
	}
	if status, _, errs := invoke(t, addr, "", "limit", "orders", "-running", "-1"); status != 2 || !strings.Contains(errs, "Running -1") {
		t.Errorf("limit of -1: %d %s", status, errs)
	}
}

func TestCommandsOnRecurringTasks(t *testing.T) {
	t.Parallel()
	m, rdb := redistest.Mini(t)
	m.RequireAuth("sesame")
	rdb.Options().Password = "sesame"
	q, err := queue.New(rdb, "orders", queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	addr := m.Addr()
	m.SetTime(time.Date(2026, 3, 28, 12, 0, 0, 0, time.UTC))
	nightly := []string{"enqueue", "orders", "report", "-id", "r", "-every", "CRON_TZ=Europe/Berlin 30 2 * * *", "-grace", "1h"}
	if o := object(t, addr, nightly...); o["outcome"] != "added" || o["due"] != "2026-03-29T01:00:00.000000Z" {
		t.Errorf("enqueue -every: %v", o)
	}
	if o := object(t, addr, "get", "orders", "r"); o["every"] != "CRON_TZ=Europe/Berlin 30 2 * * *" || o["grace"] != "1h0m0s" {
		t.Errorf("get: %v", o)
	}
	if o := object(t, addr, "enqueue", "orders", "report", "-id", "r", "-every", "@every 10m", "-in", "0s", "-on-conflict", "replace"); o["outcome"] != "replaced" || o["due"] != "2026-03-28T12:10:00.000000Z" {
		t.Errorf("a changed schedule: %v", o)
	}
	if status, out, _ := invoke(t, addr, "", "list", "orders"); status != 0 || !strings.Contains(out, `"@every 10m"`) {
		t.Errorf("list: %s", out)
	}
	if o := object(t, addr, "reschedule", "orders", "r"); o["rescheduled"] != true {
		t.Errorf("run it now: %v", o)
	}
	ds, _, err := q.Pop(t.Context(), 1, time.Minute)
	if err != nil || len(ds) != 1 {
		t.Fatal(ds, err)
	}
	if o := object(t, addr, "cancel", "orders", "r"); o["cancelled"] != true || o["last_run"] != true || o["found"] != "leased" {
		t.Errorf("cancel of a run: %v", o)
	}
	if _, out, _ := invoke(t, addr, "", "cancel", "orders", "r"); !strings.Contains(out, "for the last time: cancelled") {
		t.Errorf("cancel of a run: %s", out)
	}
	if o := object(t, addr, "cancel", "-running", "orders", "r"); o["cancelled"] != true || o["last_run"] != nil || o["found"] != "leased" {
		t.Errorf("cancel -running of a run: %v", o)
	}
}

func TestReviveAllAndPurge(t *testing.T) {
	t.Parallel()
	m, rdb := redistest.Mini(t)
	q, err := queue.New(rdb, "orders", queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	addr := m.Addr()
	// A member without a record is buried by the next pop.
	kill := func() {
		for i := range 1500 {
			if _, err := m.ZAdd("duly:{orders}:due", 1, fmt.Sprintf("t%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if _, _, err := q.Pop(t.Context(), queue.MaxBatch, time.Second); err != nil {
				t.Fatal(err)
			}
		}
	}
	kill()
	if o := object(t, addr, "stats", "orders"); o["dead"] != 1500.0 {
		t.Fatalf("stats: %v", o)
	}
	if o := object(t, addr, "revive", "orders", "-all"); o["revived"] != 1500.0 {
		t.Errorf("revive -all: %v", o)
	}
	kill()
	if status, _, errs := invoke(t, addr, "", "purge", "orders"); status != 2 || !strings.Contains(errs, "-yes") {
		t.Errorf("purge without -yes: %d %s", status, errs)
	}
	if o := object(t, addr, "purge", "orders", "-yes"); o["purged"] != 1500.0 {
		t.Errorf("purge: %v", o)
	}
}

func TestBadCommandLinesHaveStatus2(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{},
		{"nope"},
		{"-nope"},
		{"stats"},
		{"stats", "a", "b"},
		{"stats", "{a}"},
		{"stats", ""},
		{"list", "q", "-limit", "0"},
		{"list", "q", "-limit", "-1"},
		{"list", "q", "-offset", "-1"},
		{"list", "q", "-limit", "x"},
		{"list", "q", "-state", "over"},
		{"wait", "q"},
		{"wait", "q", "a", "-timeout", "-1s"},
		{"enqueue", "q", "k", "-retain", "-1s"},
		{"get", "q"},
		{"get", "q", "\x00"},
		{"enqueue", "q"},
		{"enqueue", "q", "k", "-in", "1h", "-at", "2030-01-01T00:00:00Z"},
		{"enqueue", "q", "k", "-at", "tomorrow"},
		{"enqueue", "q", "k", "-in", "5"},
		{"enqueue", "q", "k", "-on-conflict", "fight"},
		{"enqueue", "q", "k", "-at", "9999-01-01T00:00:00Z"},
		{"enqueue", "q", "k", "-expires", "soon"},
		{"enqueue", "q", "k", "-expires", "0001-01-01T00:00:00Z"},
		{"enqueue", "q", "k", "-on-expiry", "drop"},
		{"enqueue", "q", "k", "-expires", "2100-01-01T00:00:00Z", "-on-expiry", "cry"},
		{"enqueue", "q", "k", "-every", "@hourly"},
		{"enqueue", "q", "k", "-id", "x", "-every", "@reboot"},
		{"enqueue", "q", "k", "-id", "x", "-every", "0 0 30 2 *", "-in", "1h"},
		{"enqueue", "q", "k", "-id", "x", "-grace", "1h"},
		{"enqueue", "q", "k", "-id", "x", "-every", "@hourly", "-retain", "1h"},
		{"reschedule", "q"},
		{"cancel", "q"},
		{"revive", "q"},
		{"revive", "q", "a", "-all"},
		{"purge", "q"},
		{"purge", "q", "-yes", "-age", "-1h"},
		{"doctor", "q"},
		{"limit"},
		{"limit", "q", "-running", "few"},
		{"-redis", "http://:sesame@nowhere", "stats", "q"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			t.Parallel()
			// Nothing listens there: a call that is sent has status 1.
			status, out, errs := invoke(t, "127.0.0.1:1", "", args...)
			if status != 2 || out != "" || errs == "" {
				t.Errorf("status %d, printed %q and %q", status, out, errs)
			}
		})
	}
}

func TestHelpHasStatus0(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"-h"}, {"stats", "-h"}, {"enqueue", "-h"}} {
		if status, out, errs := invoke(t, "127.0.0.1:1", "", args...); status != 0 || out == "" || errs != "" {
			t.Errorf("duly %v: status %d, printed %q and %q", args, status, out, errs)
		}
	}
}

func TestRedisDownHasStatus1(t *testing.T) {
	t.Parallel()
	if status, _, errs := invoke(t, "127.0.0.1:1", "", "stats", "q"); status != 1 || errs == "" {
		t.Errorf("status %d, printed %q", status, errs)
	}
}

func TestDoctor(t *testing.T) {
	t.Parallel()
	status, out, _ := invoke(t, redistest.Start(t, "--requirepass", "sesame", "--maxmemory-policy", "allkeys-lru").Addr, "", "doctor")
	if status != 1 || !strings.Contains(out, "allkeys-lru") || !strings.Contains(out, "appendonly") {
		t.Errorf("an unfit Redis: status %d, %s", status, out)
	}
	status, out, _ = invoke(t, redistest.Start(t, "--requirepass", "sesame", "--appendonly", "yes").Addr, "", "doctor")
	if status != 0 {
		t.Errorf("a fit Redis: status %d, %s", status, out)
	}
}

func TestWhatComesFromOutsideIsQuoted(t *testing.T) {
	t.Parallel()
	m, rdb := redistest.Mini(t)
	if err := rdb.HSet(t.Context(), "duly:{orders}:task", "\x1b[31mred", "\x1b[2Jgone").Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.ZAdd("duly:{orders}:due", 1, "\x1b[31mred"); err != nil {
		t.Fatal(err)
	}
	status, out, _ := invoke(t, m.Addr(), "", "list", "orders", "-payload")
	if status != 0 || strings.Contains(out, "\x1b") {
		t.Errorf("status %d, printed %q", status, out)
	}
}
