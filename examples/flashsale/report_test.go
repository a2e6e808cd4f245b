package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dulyhq/duly"
)

// fine is a sale that held: one order reminded of, paid and shipped, one cancelled.
func fine(t *testing.T, s *store) {
	t.Helper()
	ctx := t.Context()
	sold(t, s, "a", "ann", "phone")
	sold(t, s, "b", "bob", "phone")
	if err := errors.Join(s.remind(ctx, "a", 1), s.pay(ctx, "a", 1), shipping(s)(ctx, "a", 2), s.cancel(ctx, "b", 3),
		s.auditStock(ctx, time.Now())); err != nil {
		t.Fatal(err)
	}
}

// plant writes what a mistake would have written.
func plant(t *testing.T, s *store, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := s.write.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// onTime is a run like any other, and tooEarly one that must not be.
var (
	onTime   = run{Task: "ship:a", Fence: 1, Due: 1_000_000, Popped: 1_002_500, Attempt: 1, Outcome: duly.Acked}
	tooEarly = run{Task: "cancel:a", Fence: 2, Due: 1_000_000, Popped: 999_999, Attempt: 1, Outcome: duly.Acked}
)

// told is what the buyers of these orders know, if they are there.
var told = map[string]parcel{"a": {"T"}, "x": {"T"}, "y": {"T"}}

// verdict audits, reports in JSON and returns the report with the exit status.
func verdict(t *testing.T, s *store, runs ...run) (fields map[string]any, status int, text string) {
	t.Helper()
	items, err := audit(t.Context(), s, told)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	log, err := openRunLog(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range runs {
		begun := r
		begun.Outcome = ""
		if err := errors.Join(log.append(begun), log.append(r)); err != nil {
			t.Fatal(err)
		}
	}
	read, err := readRuns(path)
	if err := errors.Join(err, log.close()); err != nil {
		t.Fatal(err)
	}
	found, err := s.findings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := newReport(items, review(read, 0), found, 0, time.Second)
	var line, prose bytes.Buffer
	status = present(r, true, &line, newConsole(io.Discard))
	if again := present(r, false, &prose, newConsole(io.Discard)); again != status {
		t.Errorf("status %d in JSON and %d in prose", status, again)
	}
	if err := json.Unmarshal(line.Bytes(), &fields); err != nil {
		t.Fatal(err)
	}
	return fields, status, prose.String()
}

// How to plant rows: their values follow.
const (
	addOrder  = `INSERT INTO orders (id, buyer, item, state, pay_by, owes) VALUES `
	addLedger = `INSERT INTO ledger (order_id, item, entry, fence, at) VALUES `
	addParcel = `INSERT INTO shipments (order_id, tracking, at) VALUES `
)

// A breach is what a mistake would have left behind, and the figure that is to
// show it; "" if nothing is wrong.
type breach struct {
	plant []string
	runs  []run
	field string
}

var breaches = map[string]breach{
	"nothing": {},
	"a phone that was not there is sold": {
		plant: []string{
			addOrder + `('x', 'xia', 'phone', 'shipped', 0, '')`,
			addLedger + `('x', 'phone', 'reserved', 0, 0), ('x', 'phone', 'paid', 0, 0), ('x', 'phone', 'shipped', 0, 0)`,
			addOrder + `('y', 'yan', 'phone', 'shipped', 0, '')`,
			addLedger + `('y', 'phone', 'reserved', 0, 0), ('y', 'phone', 'paid', 0, 0), ('y', 'phone', 'shipped', 0, 0)`,
			addParcel + `('x', 'T', 0), ('y', 'T', 0)`,
			`UPDATE items SET stock = 0`,
		},
		field: "oversold",
	},
	"a phone is sold too often for a moment": {
		plant: []string{
			addOrder + `('c', 'cid', 'phone', 'cancelled', 0, ''), ('d', 'dan', 'phone', 'cancelled', 0, '')`,
			addLedger + `('c', 'phone', 'reserved', 0, 0), ('d', 'phone', 'reserved', 0, 0)`,
			addLedger + `('c', 'phone', 'cancelled', 0, 0), ('d', 'phone', 'cancelled', 0, 0)`,
		},
		field: "oversold",
	},
	"a piece comes back twice": {
		plant: []string{`UPDATE items SET stock = stock + 1`},
		field: "oversold",
	},
	"a second parcel leaves": {
		plant: []string{addLedger + `('a', 'phone', 'shipped', 9, 0)`},
		field: "double_shipped",
	},
	"a paid order is never shipped": {
		plant: []string{
			addOrder + `('c', 'cid', 'phone', 'paid', 0, '')`,
			addLedger + `('c', 'phone', 'reserved', 0, 0), ('c', 'phone', 'paid', 1, 0)`,
			`UPDATE items SET stock = 0`,
		},
		field: "lost",
	},
	"an order stays reserved": {
		plant: []string{
			addOrder + `('c', 'cid', 'phone', 'reserved', 0, '')`,
			addLedger + `('c', 'phone', 'reserved', 0, 0)`,
			`UPDATE items SET stock = 0`,
		},
		field: "lost",
	},
	"an order's row says shipped and the ledger knows of no parcel": {
		plant: []string{`DELETE FROM ledger WHERE order_id = 'a' AND entry = 'shipped'`},
		field: "lost",
	},
	"money is taken for a cancelled order": {
		plant: []string{addLedger + `('b', 'phone', 'paid', 9, 0)`},
		field: "paid_and_cancelled",
	},
	"a buyer is told the number of another parcel": {
		plant: []string{`UPDATE shipments SET tracking = 'U' WHERE order_id = 'a'`},
		field: "untold",
	},
	"a buyer is told of no parcel": {
		plant: []string{
			addOrder + `('e', 'eve', 'phone', 'shipped', 0, '')`,
			addLedger + `('e', 'phone', 'reserved', 0, 0), ('e', 'phone', 'paid', 0, 0), ('e', 'phone', 'shipped', 0, 0)`,
			addParcel + `('e', 'T', 0)`,
			`UPDATE items SET stock = 0`,
		},
		field: "untold",
	},
	"a stock audit finds a breach": {
		plant: []string{`INSERT INTO audits (tick, breaches) VALUES (2, 1)`},
		field: "audit_breaches",
	},
	"a task runs early": {
		runs:  []run{tooEarly},
		field: "early",
	},
}

func TestTheReportCanShowEveryBreach(t *testing.T) {
	t.Parallel()
	for name, c := range breaches {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEachDatabase(t, []item{{"phone", 2}}, func(t *testing.T, _ place, s *store) {
				fine(t, s)
				plant(t, s, c.plant...)
				fields, status, text := verdict(t, s, append(c.runs, onTime)...)
				wantStatus, wantText := exitSafe, "Safe:"
				if c.field != "" {
					wantStatus, wantText = exitUnsafe, "NOT SAFE: 1 "
				}
				if status != wantStatus || !strings.Contains(text, wantText) {
					t.Errorf("status %d, want %d; %q is to be in\n%s", status, wantStatus, wantText, text)
				}
				for _, field := range []string{"oversold", "double_shipped", "lost", "paid_and_cancelled", "untold", "early", "audit_breaches"} {
					want := 0.0
					if field == c.field {
						want = 1
					}
					if fields[field] != want {
						t.Errorf("%s = %v, want %v", field, fields[field], want)
					}
				}
			})
		})
	}
}

func TestTheJSONHasItsNames(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, []item{{"phone", 2}}, func(t *testing.T, _ place, s *store) {
		fine(t, s)
		fields, _, _ := verdict(t, s, onTime)
		for name, want := range map[string]any{
			"stock": 2.0, "buyers": 0.0, "accepted": 2.0, "sold_out": 0.0, "oversold": 0.0, "paid": 1.0, "cancelled": 1.0,
			"shipped": 1.0, "double_shipped": 0.0, "lost": 0.0, "paid_and_cancelled": 0.0, "reminded": 1.0, "untold": 0.0, "early": 0.0,
			"lateness_p50_ms": 2.5, "lateness_p99_ms": 2.5, "lateness_max_ms": 2.5, "retries": 0.0, "crashes": 0.0,
			"reminders_expired": 0.0, "audits": 1.0, "audit_breaches": 0.0, "duration_s": 1.0,
		} {
			if fields[name] != want {
				t.Errorf("%s = %v, want %v", name, fields[name], want)
			}
		}
	})
}

func TestReviewCountsRetriesAndCrashes(t *testing.T) {
	t.Parallel()
	runs := []*run{
		{Due: 0, Popped: 1_000, Attempt: 1},
		{Due: 0, Popped: 2_000, Attempt: 2, Outcome: duly.Acked},
		{Due: 0, Popped: 9_000, Attempt: 1, Crashes: 1, Outcome: duly.Acked},
	}
	f := review(runs, 1)
	if f.Retries != 1 || f.Crashes != 2 || f.takenOver != 1 || f.runs != 3 {
		t.Errorf("%+v, want 1 retry, and 2 crashes: the kill and the run in its place", f)
	}
	if f.P50 != 2 || f.P99 != 9 || f.Max != 9 || f.calmMax != 2 {
		t.Errorf("lateness %+v, want p50 2, p99 and max 9, and 2 without the crash", f)
	}
}

func TestRankIsTheNearest(t *testing.T) {
	t.Parallel()
	var hundred []time.Duration
	for n := range 100 {
		hundred = append(hundred, time.Duration(n+1))
	}
	for _, c := range []struct {
		sorted []time.Duration
		p      float64
		want   time.Duration
	}{
		{nil, 0.5, 0},
		{hundred[:1], 0.5, 1},
		{hundred[:1], 0.99, 1},
		{hundred[:2], 0.5, 1},
		{hundred, 0.5, 50},
		{hundred, 0.99, 99},
		{hundred, 1, 100},
	} {
		if got := rank(c.sorted, c.p); got != c.want {
			t.Errorf("rank %v of %d values is %d, want %d", c.p, len(c.sorted), got, c.want)
		}
	}
}

func TestRunsOfAWorkerKilledInTheMiddleOfALine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.jsonl")
	text := `{"task":"a","fence":1,"attempt":1}
{"task":"b","fence":1,"attempt":1}
{"task":"a","fence":1,"attempt":1,"outcome":"ack"}
{"task":"b","fence":1,"att`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	runs, err := readRuns(path, path+".not-there")
	if err != nil || len(runs) != 2 || runs[0].Outcome != duly.Acked || runs[1].Outcome != "" {
		t.Errorf("%v, %v; want a run that ended and one that was cut short", runs, err)
	}
}

func TestNumbersForPeople(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
	for ms, want := range map[float64]string{0: "0.0", 1.26: "1.3", 9.9: "9.9", 12.6: "13", 2001: "2,001"} {
		if got := milli(ms); got != want {
			t.Errorf("%v is %q, want %q", ms, got, want)
		}
	}
}
