package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
)

// payloadCut bounds the payload that is shown as text.
const payloadCut = 4 << 10

// A printer answers as text for people, or as one JSON object a line.
type printer struct {
	w    io.Writer
	json bool
}

func (p printer) line(s string) error {
	if p.json {
		return p.object(map[string]any{"message": s})
	}
	_, err := fmt.Fprintln(p.w, s)
	return err
}

func (p printer) object(v any) error { return json.NewEncoder(p.w).Encode(v) }

func (p printer) count(n int, done string) error {
	if p.json {
		return p.object(map[string]any{done: n})
	}
	_, err := fmt.Fprintf(p.w, "%d %s\n", n, done)
	return err
}

// What is found where a task runs: one that recurs, and was cancelled; or one that is to
// be replaced, and it is the replacement that something was done to.
const (
	lastRun        queue.State = "leased, for the last time"
	replacementDue queue.State = "leased, its replacement due"
)

// found tells what was done to a task: something if it was in one of the states
// on, else nothing.
func (p printer) found(id string, state queue.State, done string, on ...queue.State) error {
	acted := slices.Contains(on, state)
	if p.json {
		o := map[string]any{"id": id, "found": state, done: acted}
		switch state {
		case lastRun:
			o["found"], o["last_run"] = queue.Leased, true
		case replacementDue:
			o["found"], o["replacement"] = queue.Leased, true
		}
		return p.object(o)
	}
	if !acted {
		done = "left alone"
	}
	_, err := fmt.Fprintf(p.w, "%q was %s: %s\n", id, state, done)
	return err
}

func (p printer) receipt(r queue.Receipt) error {
	if p.json {
		return p.object(map[string]any{"id": r.ID, "outcome": r.Outcome, "state": r.State, "due": stamp(r.Due)})
	}
	_, err := fmt.Fprintf(p.w, "%q %s (was %s), due %s\n", r.ID, r.Outcome, r.State, stamp(r.Due))
	return err
}

func (p printer) stats(name string, s queue.Stats) error {
	if p.json {
		return p.object(map[string]any{
			"queue": name, "due": s.Due, "ready": s.Ready, "parked": s.Parked, "leased": s.Leased, "dead": s.Dead, "done": s.Done,
			"lateness_ms": float64(s.Lateness.Microseconds()) / 1000, "paused": s.Paused, "locked": s.Locked,
			"limits": limitsObject(s.Limits), "counters": s.Counters,
		})
	}
	w := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	row := func(name string, value any) { _, _ = fmt.Fprintf(w, "%s\t%v\n", name, value) } // Flush tells
	row("due", fmt.Sprintf("%d, %d of them ready, %d parked", s.Due, s.Ready, s.Parked))
	row("leased", s.Leased)
	row("dead", s.Dead)
	row("done", s.Done)
	row("late", s.Lateness)
	row("paused", s.Paused)
	row("locked", s.Locked)
	row("limits", limitsText(s.Limits))
	names := make([]string, 0, len(s.Counters))
	for name := range s.Counters {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		row("  "+name, s.Counters[name])
	}
	return w.Flush()
}

func (p printer) limits(l queue.Limits) error {
	if p.json {
		return p.object(limitsObject(l))
	}
	return p.line(limitsText(l))
}

func limitsObject(l queue.Limits) map[string]any {
	return map[string]any{"running": l.Running, "rate": l.Rate, "burst": l.Burst}
}

func limitsText(l queue.Limits) string {
	var all []string
	if l.Running > 0 {
		all = append(all, fmt.Sprintf("%d running", l.Running))
	}
	if l.Rate > 0 {
		all = append(all, fmt.Sprintf("%v/s with a burst of %d", l.Rate, l.Burst))
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

// tasks prints a table. What comes from outside is quoted, so that it cannot
// play tricks on a terminal.
func (p printer) tasks(infos []queue.Info, payload bool) error {
	if p.json {
		for i := range infos {
			if err := p.object(taskObject(&infos[i], payload)); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "STATE\tAT\tID\tKIND\tFAILURES\tCRASHES\tEVERY\tLAST ERROR") // Flush tells
	for i := range infos {
		t := &infos[i]
		trouble := t.LastError
		if t.Corrupt != nil {
			trouble = t.Corrupt.Error()
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%q\t%q\t%d\t%d\t%s\t%q\n", t.State, stamp(t.At), t.ID, t.Kind, t.Failures, t.Crashes, schedule(t), trouble)
		if payload {
			_, _ = fmt.Fprintf(w, "\t%q\n", cut(content(t)))
		}
		for _, r := range reports(t) {
			_, _ = fmt.Fprintf(w, "\t%s: %s\n", r.what, cut([]byte(printable(r.report))))
		}
	}
	return w.Flush()
}

// schedule is that of a task that recurs.
func schedule(t *queue.Info) string {
	switch {
	case t.Every == "":
		return "-"
	case t.Grace > 0:
		return fmt.Sprintf("%q within %v", t.Every, t.Grace)
	}
	return strconv.Quote(t.Every)
}

func taskObject(t *queue.Info, payload bool) map[string]any {
	o := map[string]any{
		"state": t.State, "at": stamp(t.At), "id": t.ID, "kind": t.Kind, "lock_key": t.LockKey,
		"failures": t.Failures, "crashes": t.Crashes, "last_error": t.LastError,
	}
	if t.Corrupt != nil {
		o["corrupt"] = t.Corrupt.Error()
	}
	if !t.Replacement.IsZero() {
		o["replacement"] = stamp(t.Replacement)
	}
	if !t.Expires.IsZero() {
		o["expires"], o["on_expiry"] = stamp(t.Expires), cmp.Or(t.OnExpiry, duly.Buried)
	}
	if t.Every != "" {
		o["every"] = t.Every
	}
	if t.Grace > 0 {
		o["grace"] = t.Grace.String()
	}
	if t.Retain > 0 {
		o["retain"] = t.Retain.String()
	}
	for _, r := range reports(t) {
		o[r.what] = asJSON(r.report)
	}
	if payload {
		o["payload"] = content(t)
	}
	return o
}

// ended tells how a task has ended: of one that is done, as text, the result alone.
func (p printer) ended(e duly.Ended) error {
	if !p.json {
		if e.Result == nil {
			return nil
		}
		return p.line(printable(e.Result))
	}
	o := map[string]any{"id": e.ID, "ended": e.Action}
	if e.Result != nil {
		o["result"] = asJSON(e.Result)
	}
	if e.Err != nil {
		o["error"] = e.Err.Error()
	}
	return p.object(o)
}

// A labelled is what a handler has reported, and what that is.
type labelled struct {
	what   string
	report []byte
}

// reports are those that there are.
func reports(t *queue.Info) []labelled {
	all := []labelled{{"progress", t.Progress}, {"result", t.Result}}
	return slices.DeleteFunc(all, func(r labelled) bool { return r.report == nil })
}

// printable is a report as JSON on one line, what plays tricks on a terminal escaped.
func printable(report []byte) string {
	var line bytes.Buffer
	if json.Compact(&line, report) != nil {
		return strconv.Quote(string(report))
	}
	var b strings.Builder
	for _, r := range line.String() {
		if unicode.IsGraphic(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, "\\u%04x", unit)
		}
	}
	return b.String()
}

// asJSON is what was reported, as a string if it is not the JSON that it should be.
func asJSON(report []byte) any {
	if json.Valid(report) {
		return json.RawMessage(report)
	}
	return string(report)
}

// content is a task's payload, or the whole record if that does not decode.
func content(t *queue.Info) []byte {
	if t.Corrupt != nil {
		return t.Raw
	}
	return t.Payload
}

func cut(b []byte) string {
	if len(b) > payloadCut {
		return strings.ToValidUTF8(string(b[:payloadCut]), "") + "…"
	}
	return string(b)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}
