package main

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/dulyhq/duly/lock/redistest"
)

// A counted writer counts what is printed and keeps none of it.
type counted int

func (c *counted) Write(p []byte) (int, error) {
	*c += counted(len(p))
	return len(p), nil
}

// No command line makes the tool panic, hang, or print without end. What is between
// newlines is an argument.
func FuzzCommandLines(f *testing.F) {
	for _, line := range []string{
		"", "-h", "-json", "-x", "stats", "stats q", "-json\nstats\nq", "-redis\nhttp://x\nstats\nq", "-prefix\n{\nstats\nq",
		"list\nq\n-state\ndead\n-n\n-1", "list\nq\n-n\n9223372036854775808", "get\nq\nid", "get\nq\n" + strings.Repeat("i", 600),
		"enqueue\nq\nk\n-in\n1h\n-payload\np", "enqueue\nq\nk\n-payload\n-", "enqueue\nq\nk\n-at\n9999-01-01T00:00:00Z",
		"enqueue\nq\nk\n-id\na\n-every\n* * * * *", "enqueue\nq\nk\n-id\na\n-every\n@every 1ns", "wait\nq\nid\n-timeout\n1ms",
		"cancel\nq\na\nb\n-running", "reschedule\nq\na\n-in\n-1h", "revive\nq\n-all\n-yes", "revive\nq", "purge\nq\n-yes", "pause\nq",
		"resume\nq", "limit\nq\n-running\n-1\n-rate\nNaN", "limit\nq\n-rate\n1e308\n-burst\n1", "doctor", "stats\n\xff", "stats\n\x00", "stats\n-h",
	} {
		f.Add(line, "in")
	}
	m, _ := redistest.Mini(f)
	f.Fuzz(func(t *testing.T, line, in string) {
		const most = 1 << 16 // bytes; a payload is shown with up to 2 bytes for each
		if len(line)+len(in) > most {
			t.Skip("too long")
		}
		for _, scheme := range []string{"redis://", "rediss://", "unix://"} {
			if strings.Contains(strings.ToLower(line), scheme) {
				t.Skip("for another Redis")
			}
		}
		m.FlushAll()
		for _, addr := range []string{m.Addr(), "127.0.0.1:1"} { // nobody listens at the second
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			var out, errs counted
			env := func(string) string { return "redis://" + addr }
			began := time.Now()
			status := run(ctx, strings.Split(line, "\n"), env, io.LimitReader(strings.NewReader(in), most), &out, &errs)
			cancel()
			if status < 0 || status > 2 {
				t.Errorf("status %d", status)
			}
			if total := int(out + errs); total > 8*(len(line)+len(in))+8192 {
				t.Errorf("%d bytes are printed for %d", total, len(line)+len(in))
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %v, with a context of 300 ms", took)
			}
		}
	})
}
