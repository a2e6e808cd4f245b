package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The systems that the others are compared with.
const (
	peer    = "asynq"
	ceiling = "raw"

	leasedCeiling = "raw-leased" // for itself, not a column
)

// writeTables prints a table for each suite: Markdown, for the page that shows a
// run, with columns in line for the terminal.
func writeTables(w io.Writer, all []summary, order []suite) error {
	for _, s := range order {
		own := slices.DeleteFunc(slices.Clone(all), func(x summary) bool { return x.suite != s.name })
		if len(own) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n## %s: %s\n\n", s.name, s.what); err != nil {
			return err
		}
		against := s.against
		if against == nil {
			against = []string{peer, ceiling}
		}
		if err := writeRows(w, suiteRows(own, against)); err != nil {
			return err
		}
	}
	return nil
}

func suiteRows(all []summary, against []string) [][]string {
	head := []string{"metric", "unit", "system", "median", "min", "max"}
	for _, base := range against {
		head = append(head, "× "+base)
	}
	rows := [][]string{head}
	medians := make(map[string]summary)
	for _, s := range all {
		medians[s.metric+"\x00"+s.system] = s
	}
	last := ""
	for _, s := range all {
		metric, unit := s.metric, s.unit
		if metric == last {
			metric, unit = "", ""
		}
		last = s.metric
		median := number(s.median)
		if s.over {
			median = "> " + median
		}
		row := []string{metric, unit, s.system, median, number(s.least), number(s.most)}
		for _, base := range against {
			row = append(row, ratio(s, medians[s.metric+"\x00"+base]))
		}
		rows = append(rows, row)
	}
	return rows
}

// ratio is how many times the base's median a system's is: above one is faster
// for a rate, and slower for a time. With a bound on one side it is one too.
func ratio(s, base summary) string {
	if base.system == "" || base.system == s.system || base.median <= 0 || s.median <= 0 || s.over && base.over {
		return ""
	}
	bound := ""
	switch {
	case s.over:
		bound = "> "
	case base.over:
		bound = "< "
	}
	return bound + number(s.median/base.median)
}

// number shows three digits, or all of the whole part, in groups of three.
func number(v float64) string {
	if v != 0 && math.Abs(v) < 100 && v != math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', max(0, 2-int(math.Floor(math.Log10(math.Abs(v))))), 64)
	}
	digits := strconv.FormatFloat(math.Round(math.Abs(v)), 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if v < 0 {
		return "-" + digits
	}
	return digits
}

func writeRows(w io.Writer, rows [][]string) error {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for r, row := range rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i < 3 { // words
				b.WriteString("| " + cell + pad + " ")
			} else {
				b.WriteString("| " + pad + cell + " ")
			}
		}
		b.WriteString("|\n")
		if r == 0 {
			for i, width := range widths {
				if i < 3 {
					b.WriteString("|" + strings.Repeat("-", width+2))
				} else {
					b.WriteString("|" + strings.Repeat("-", width+1) + ":")
				}
			}
			b.WriteString("|\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
