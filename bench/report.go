package main

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
)

// A record is one measurement, a line of the JSON file.
type record struct {
	Suite  string  `json:"suite"`
	System string  `json:"system"`
	Metric string  `json:"metric"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Round  int     `json:"round"`

	// Over says that the value is where the measurement was given up: the true
	// one is higher.
	Over bool `json:"over,omitempty"`
}

// A report takes measurements and sums them up. Its methods may be called
// concurrently.
type report struct {
	mu      sync.Mutex
	lines   *json.Encoder
	err     error // of writing, the first
	records []record
	failed  []error
}

// newReport returns a report that writes each record to w as a line of JSON.
func newReport(w io.Writer) *report { return &report{lines: json.NewEncoder(w)} }

func (r *report) add(rec record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records = append(r.records, rec)
	if err := r.lines.Encode(rec); r.err == nil {
		r.err = err
	}
}

// fail notes a measurement that went wrong.
func (r *report) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, err)
}

// failure joins all that went wrong, the writing of the file included.
func (r *report) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(append(r.failed, r.err)...)
}

// find returns the value of one measurement.
func (r *report) find(suite, system, metric string, round int) (float64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.records {
		if rec.Suite == suite && rec.System == system && rec.Metric == metric && rec.Round == round {
			return rec.Value, true
		}
	}
	return 0, false
}

// A summary is the rounds of one metric of one system.
type summary struct {
	suite, metric, unit, system string

	median, least, most float64
	over                bool // the median is a bound
}

// summaries returns a summary for each metric and system, metrics in the order
// in which they were first measured, and the systems of one together.
func (r *report) summaries() []summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	type name struct{ suite, metric, unit string }
	var names []name
	measured := make(map[name][]string)
	rounds := make(map[name]map[string][]record)
	for _, rec := range r.records {
		n := name{rec.Suite, rec.Metric, rec.Unit}
		if rounds[n] == nil {
			names = append(names, n)
			rounds[n] = make(map[string][]record)
		}
		if rounds[n][rec.System] == nil {
			measured[n] = append(measured[n], rec.System)
		}
		rounds[n][rec.System] = append(rounds[n][rec.System], rec)
	}
	var all []summary
	for _, n := range names {
		slices.SortStableFunc(measured[n], func(a, b string) int { return turn(a) - turn(b) })
		for _, system := range measured[n] {
			s := summarize(rounds[n][system])
			s.suite, s.metric, s.unit, s.system = n.suite, n.metric, n.unit, system
			all = append(all, s)
		}
	}
	return all
}

// turn is the place of a contender among all.
func turn(name string) int { return slices.Index(contenders(), name) }

// summarize orders a bound behind every number, for what it stands for is
// higher. The median of an even count is the mean of the two in the middle.
func summarize(rounds []record) summary {
	sorted := slices.Clone(rounds)
	slices.SortFunc(sorted, func(a, b record) int {
		switch {
		case a.Over != b.Over && a.Over, a.Over == b.Over && a.Value > b.Value:
			return 1
		case a.Over != b.Over || a.Value < b.Value:
			return -1
		}
		return 0
	})
	n := len(sorted)
	low, high := sorted[(n-1)/2], sorted[n/2]
	return summary{
		median: (low.Value + high.Value) / 2, over: high.Over,
		least: sorted[0].Value, most: sorted[n-1].Value,
	}
}
