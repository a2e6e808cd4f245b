package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// A report is what came of a sale.
type report struct {
	figures
	runFigures
	findings
	Duration float64        `json:"duration_s"`
	Items    []*itemFigures `json:"items"`

	Expired int `json:"reminders_expired"` // and so not sent

	killed                int
	late, inTime, tooLate int64 // buyers who paid right at the deadline
}

// newReport adds up.
func newReport(items []*itemFigures, runs runFigures, found findings, killed int, took time.Duration) *report {
	r := &report{runFigures: runs, findings: found, Items: items, killed: killed, Duration: float64(took.Milliseconds()) / 1000}
	for _, f := range items {
		r.add(&f.figures)
	}
	return r
}

// breach names what must be zero and is not; it is empty if the sale held.
func (r *report) breach() string {
	var all []string
	for _, c := range []struct {
		n    int
		what string
	}{
		{r.Oversold, "oversold"},
		{r.DoubleShipped, "shipped twice"},
		{r.Lost, "lost"},
		{r.PaidAndCancelled, "paid and cancelled"},
		{r.Untold, "buyers untold of their parcel"},
		{r.Early, "run early"},
		{r.Breaches, "breaches found by the stock audit"},
	} {
		if c.n != 0 {
			all = append(all, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	return strings.Join(all, ", ")
}

// writeJSON writes one line.
func (r *report) writeJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// writeText writes for people.
func (r *report) writeText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s buyers for %s pieces, in %.1f s\n\n", grouped(r.Buyers), grouped(r.Stock), r.Duration)
	r.writeTable(&b, "", []column{
		{"stock", func(f *itemFigures) int { return f.Stock }},
		{"buyers", func(f *itemFigures) int { return f.Buyers }},
		{"accepted", func(f *itemFigures) int { return f.Accepted }},
		{"sold out", func(f *itemFigures) int { return f.SoldOut }},
		{"paid", func(f *itemFigures) int { return f.Paid }},
		{"cancelled", func(f *itemFigures) int { return f.Cancelled }},
		{"shipped", func(f *itemFigures) int { return f.Shipped }},
		{"left", func(f *itemFigures) int { return f.Left }},
	})
	r.writeTable(&b, "must be 0", []column{
		{"oversold", func(f *itemFigures) int { return f.Oversold }},
		{"shipped twice", func(f *itemFigures) int { return f.DoubleShipped }},
		{"lost", func(f *itemFigures) int { return f.Lost }},
		{"paid and cancelled", func(f *itemFigures) int { return f.PaidAndCancelled }},
		{"untold", func(f *itemFigures) int { return f.Untold }},
	})
	r.writeRuns(&b)
	if breach := r.breach(); breach != "" {
		fmt.Fprintf(&b, "\nNOT SAFE: %s\n", breach)
	} else {
		b.WriteString("\nSafe: nothing oversold, shipped twice, lost, paid and cancelled, or run early, and no buyer untold.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *report) writeRuns(b *strings.Builder) {
	fmt.Fprintf(b, "runs      %s of tasks, %d of them early, %s retries\n", grouped(r.runs), r.Early, grouped(r.Retries))
	fmt.Fprintf(b, "lateness  p50 %s ms, p99 %s ms, max %s ms", milli(r.P50), milli(r.P99), milli(r.Max))
	if r.takenOver > 0 {
		fmt.Fprintf(b, " (%s ms but for the tasks of killed workers)", milli(r.calmMax))
	}
	fmt.Fprintf(b, "\ncrashes   %d: workers killed %d, runs in place of theirs %d\n", r.Crashes, r.killed, r.takenOver)
	fmt.Fprintf(b, "reminders %s sent, %s expired\n", grouped(r.Reminded), grouped(r.Expired))
	fmt.Fprintf(b, "audits    %s of the stock during the sale, %d breaches found\n", grouped(r.Audits), r.Breaches)
	if r.late > 0 {
		fmt.Fprintf(b, "deadline  %d paid right at it: %d in time, %d too late\n", r.late, r.inTime, r.tooLate)
	}
}

// A column is a figure of every item.
type column struct {
	name string
	of   func(*itemFigures) int
}

func (r *report) writeTable(b *strings.Builder, title string, columns []column) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(first string, cell func(column) string) {
		cells := []string{first}
		for _, c := range columns {
			cells = append(cells, cell(c))
		}
		_, _ = fmt.Fprintln(t, strings.Join(cells, "\t")+"\t") // into memory
	}
	line(title, func(c column) string { return c.name })
	for _, f := range append(r.Items[:len(r.Items):len(r.Items)], r.all()) {
		line(f.Item, func(c column) string { return grouped(c.of(f)) })
	}
	_ = t.Flush()
	b.WriteString("\n")
}

func (r *report) all() *itemFigures {
	all := &itemFigures{Item: "in all", figures: r.figures}
	for _, f := range r.Items {
		all.Left += f.Left
	}
	return all
}

// grouped writes 12345 as 12,345.
func grouped(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// milli writes milliseconds with as many digits as matter.
func milli(ms float64) string {
	if ms >= 10 {
		return grouped(int(ms + 0.5))
	}
	return strconv.FormatFloat(ms, 'f', 1, 64)
}
