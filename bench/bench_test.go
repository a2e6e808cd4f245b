package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The smoke run shows that two suites work and that every line of the file is a
// measurement.
func TestQuickRun(t *testing.T) {
	needRedis(t)
	out := filepath.Join(t.TempDir(), "out", "latest.jsonl")
	var tables, log bytes.Buffer
	args := []string{"-quick", "-suites", "enqueue,process,cpu", "-systems", "duly,raw", "-out", out}
	if err := run(t.Context(), args, &tables, &log); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	seen := make(map[string]bool)
	for _, rec := range readRecords(t, out) {
		if rec.Value <= 0 || rec.Unit == "" || rec.Round != 1 {
			t.Errorf("odd record %+v", rec)
		}
		seen[rec.System+", "+rec.Metric] = true
	}
	for _, sys := range []string{"duly", "raw"} {
		for _, metric := range []string{"256 callers", "batches of 1,000", fullSpeed.String()} {
			if !seen[sys+", "+metric] {
				t.Errorf("no %q of %s", metric, sys)
			}
		}
	}
	if metric := "process, " + fullSpeed.String() + ": in evalsha"; !seen["duly, "+metric] {
		t.Errorf("no %q of duly", metric)
	}
	for _, want := range []string{"## enqueue", "## process", "## cpu", "| duly ", "× raw"} {
		if !strings.Contains(tables.String(), want) {
			t.Errorf("no %q in the tables:\n%s", want, tables.String())
		}
	}
}

func needRedis(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("DULY_REQUIRE_REDIS") == "1" {
			t.Fatal("DULY_REQUIRE_REDIS=1, and no redis-server on the PATH")
		}
		t.Skip("skipped: needs redis-server on the PATH")
	}
}

// readRecords reads the file of single measurements.
func readRecords(t *testing.T, name string) []record {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	var all []record
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var rec record
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		all = append(all, rec)
	}
	return all
}

func TestBadArguments(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"-suites", "nonesuch"}, {"-systems", "nonesuch"}, {"-rounds", "0"}, {"-sizes", "many"}, {"stray"}, {"-nonesuch"},
	} {
		out := filepath.Join(t.TempDir(), "latest.jsonl")
		if err := run(t.Context(), append([]string{"-out", out}, args...), io.Discard, io.Discard); err == nil {
			t.Errorf("no error for %q", args)
		}
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	rounds := func(values ...float64) []record {
		var all []record
		for _, v := range values {
			all = append(all, record{Value: max(v, -v), Over: v < 0}) // a negative one is a bound here
		}
		return all
	}
	for _, c := range []struct {
		name   string
		rounds []record
		want   summary
	}{
		{"one", rounds(5), summary{median: 5, least: 5, most: 5}},
		{"odd", rounds(9, 1, 4), summary{median: 4, least: 1, most: 9}},
		{"even", rounds(4, 1, 2, 9), summary{median: 3, least: 1, most: 9}},
		{"a bound is above all numbers", rounds(-3, 8, 7), summary{median: 8, least: 7, most: 3}},
		{"most are bounds", rounds(-180, 90, -180), summary{median: 180, least: 90, most: 180, over: true}},
	} {
		if got := summarize(c.rounds); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestReport(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	r := newReport(&lines)
	for round, values := range [][]float64{{300, 100, 1200}, {310, 90, 1000}, {290, 110, 1100}} {
		for i, sys := range []string{"duly", "asynq", "raw"} {
			r.add(record{Suite: "process", System: sys, Metric: "rate", Value: values[i], Unit: "tasks/s", Round: round + 1})
		}
	}
	first, _, _ := strings.Cut(lines.String(), "\n")
	want := `{"suite":"process","system":"duly","metric":"rate","value":300,"unit":"tasks/s","round":1}`
	if first != want {
		t.Errorf("line %s, want %s", first, want)
	}
	var b strings.Builder
	if err := writeTables(&b, r.summaries(), []suite{{name: "process", what: "of a test"}}); err != nil {
		t.Fatal(err)
	}
	const table = `
## process: of a test

| metric | unit    | system | median |   min |   max | × asynq |  × raw |
|--------|---------|--------|-------:|------:|------:|--------:|-------:|
| rate   | tasks/s | duly   |    300 |   290 |   310 |       3 |  0.273 |
|        |         | asynq  |    100 |    90 |   110 |         | 0.0909 |
|        |         | raw    |  1,100 | 1,000 | 1,200 |      11 |        |
`
	if b.String() != table {
		t.Errorf("got\n%s\nwant\n%s", b.String(), table)
	}
}

func TestRatio(t *testing.T) {
	t.Parallel()
	of := func(system string, median float64, over bool) summary {
		return summary{system: system, median: median, over: over}
	}
	for _, c := range []struct {
		s, base summary
		want    string
	}{
		{of("duly", 6, false), of("asynq", 3, false), "2"},
		{of("duly", 6, true), of("asynq", 3, false), "> 2"},
		{of("duly", 6, false), of("asynq", 3, true), "< 2"},
		{of("duly", 6, true), of("asynq", 3, true), ""},
		{of("duly", 6, false), of("asynq", 0, false), ""},
		{of("asynq", 6, false), of("asynq", 6, false), ""},
		{of("duly", 6, false), summary{}, ""},
	} {
		if got := ratio(c.s, c.base); got != c.want {
			t.Errorf("%v against %v: %q, want %q", c.s, c.base, got, c.want)
		}
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 7: "7", 0.0375: "0.0375", 3.14159: "3.14", 42.42: "42.4", 99.96: "100.0", 1234.6: "1,235", 1e6: "1,000,000",
		-3.5: "-3.50", -12345: "-12,345",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestTaskIDs(t *testing.T) {
	t.Parallel()
	id := taskID('t', 1234567)
	if len(id) != idSize || taskNumber(id) != 1234567 {
		t.Errorf("%q is read as %d", id, taskNumber(id))
	}
	if taskNumber(taskID('b', 1)) != -1 {
		t.Error("a task that only lies there is taken for a measured one")
	}
	if len(payload) != payloadSize {
		t.Errorf("a payload of %d bytes", len(payload))
	}
}

func TestPlanIsABijectionInDueOrder(t *testing.T) {
	t.Parallel()
	start := time.Now()
	p := newPlan(2000, start, 4*time.Second)
	for i, task := range p.tasks {
		n := taskNumber(task.id)
		if p.rank[n] != i || !p.due[n].Equal(task.due) {
			t.Fatalf("task %d has rank %d and due %v", n, p.rank[n], p.due[n])
		}
		if i > 0 && task.due.Before(p.tasks[i-1].due) {
			t.Fatalf("task %d is due before the one before it", i)
		}
	}
	if last := p.tasks[1999].due.Sub(start); last < 3990*time.Millisecond || last >= 4*time.Second {
		t.Errorf("the last is due after %v", last)
	}
}

// A link delays every byte, and what is sent back to back only once.
func TestLinkDelaysWithoutThrottling(t *testing.T) {
	t.Parallel()
	const delay = 20 * time.Millisecond
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = echo.Close() }()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	l, err := startLink(t.Context(), echo.Addr().String(), delay)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", l.addr)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	const parts, size = 50, 10_000
	go func() {
		for range parts {
			_, _ = c.Write(bytes.Repeat([]byte("x"), size))
		}
	}()
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 2*delay {
		t.Errorf("a round trip took %v, less than twice %v", took, delay)
	}
	got, err := io.ReadFull(c, make([]byte, parts*size-1))
	if err != nil {
		t.Fatalf("%d bytes: %v", got, err)
	}
	if took := time.Since(start); took > parts*delay {
		t.Errorf("%d parts took %v: they waited for each other", parts, took)
	}
	if err := l.stop(); err != nil {
		t.Error(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the link is stopped, and the connection is not")
	}
}
