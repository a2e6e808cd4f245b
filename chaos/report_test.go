package chaos

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// A report is what a scenario has shown.
type report struct {
	Scenario string             `json:"scenario"`
	Seed     uint64             `json:"seed"`
	Seconds  float64            `json:"seconds"`
	Faults   map[string]int     `json:"faults"`
	Tally    *tally             `json:"tally,omitempty"`
	Measured map[string]float64 `json:"measured,omitempty"` // unit in the name
	Broken   []string           `json:"broken"`             // promises, as text

	t     *testing.T
	began time.Time
	rnd   *rand.Rand // the plan's

	mu sync.Mutex // guards the maps and Broken until the end
}

// reports are those of this run, in the order of their ends.
var reports = new(ledger)

type ledger struct {
	mu   sync.Mutex
	done []*report
}

// begin begins the report of a scenario; it is printed when the test ends.
func begin(t *testing.T, scenario string) *report {
	t.Helper()
	r := &report{
		Scenario: scenario, Seed: *seed, Faults: map[string]int{}, Measured: map[string]float64{}, Broken: []string{},
		t: t, began: time.Now(),
	}
	if r.Seed == 0 {
		r.Seed = 1 + rand.Uint64N(1_000_000)
	}
	r.rnd = rand.New(rand.NewPCG(r.Seed, 0))
	t.Cleanup(r.end)
	return r
}

// fault counts a fault that was injected.
func (r *report) fault(what string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Faults[what] += n
}

// measure notes a figure; its unit is in its name.
func (r *report) measure(what string, value float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Measured[what] = value
}

// broken notes that a promise was broken, and fails the scenario.
func (r *report) broken(format string, args ...any) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Broken = append(r.Broken, fmt.Sprintf(format, args...))
	r.t.Errorf(format, args...)
}

// promise notes that one was broken, unless it was kept.
func (r *report) promise(kept bool, format string, args ...any) {
	r.t.Helper()
	if !kept {
		r.broken(format, args...)
	}
}

func (r *report) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.t.Skipped() {
		return
	}
	if r.t.Failed() && len(r.Broken) == 0 {
		r.Broken = append(r.Broken, "the scenario could not be carried out")
	}
	r.Seconds = time.Since(r.began).Seconds()
	line, err := json.Marshal(r)
	if err != nil {
		r.t.Error(err)
	}
	reports.mu.Lock()
	defer reports.mu.Unlock()
	_, _ = os.Stdout.Write(append(line, '\n'))
	reports.done = append(reports.done, r)
}

// table prints a row for each scenario.
func (l *ledger) table(w io.Writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.done) == 0 {
		return nil
	}
	var rows, rest strings.Builder
	rows.WriteString("scenario\ts\tattempts\tacked\tlost\tunexpected\tduplicated\trecovered\tearly\tdouble acks\treruns\t  faults\t\n")
	for _, r := range l.done {
		t := r.Tally
		if t == nil {
			t = new(tally)
		}
		fmt.Fprintf(&rows, "%s\t%.1f\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t  %s\t\n", r.Scenario, r.Seconds, t.Attempts, t.Acked,
			t.Lost, t.Unexpected, t.Duplicated, t.Recovered, t.Early, t.DoubleAcks, t.Reruns, r.faults())
		for _, what := range slices.Sorted(maps.Keys(r.Measured)) {
			fmt.Fprintf(&rest, "%s: %s %.4g\n", r.Scenario, what, r.Measured[what])
		}
		for _, what := range r.Broken {
			fmt.Fprintf(&rest, "BROKEN %s (seed %d): %s\n", r.Scenario, r.Seed, what)
		}
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	if _, err := io.WriteString(tw, rows.String()); err != nil {
		return err
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, rest.String())
	return err
}

func (r *report) faults() string {
	words := make([]string, 0, len(r.Faults))
	for _, what := range slices.Sorted(maps.Keys(r.Faults)) {
		words = append(words, fmt.Sprint(r.Faults[what], " ", what))
	}
	return strings.Join(words, ", ")
}
