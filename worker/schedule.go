package worker

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// Bounds of an interval.
const (
	leastInterval = 100 * time.Millisecond
	mostInterval  = 366 * 24 * time.Hour
)

// yearsAhead is how far the next tick is looked for: from one 29 February to the
// next it can be eight years.
const yearsAhead = 9

// NextTick returns the first tick of a schedule after a time, as the package
// comment describes schedules. The error matches [ErrInvalid] if the schedule
// cannot be read, or never fires again.
func NextTick(every string, after time.Time) (time.Time, error) {
	s, err := parseSchedule(every)
	if err != nil {
		return time.Time{}, err
	}
	next := s.next(after)
	if next.IsZero() {
		return next, fmt.Errorf("%w: schedule %.200q has no tick in %d years", ErrInvalid, every, yearsAhead)
	}
	return next, nil
}

// A schedule is when a recurring task is to run.
type schedule interface {
	// next is the first tick after a time, or the zero time.
	next(after time.Time) time.Time
}

func parseSchedule(every string) (schedule, error) {
	if text, ok := strings.CutPrefix(every, "@every "); ok {
		return parseInterval(text)
	}
	zone, rest, _ := strings.Cut(every, " ")
	if strings.HasPrefix(zone, "TZ=") || strings.HasPrefix(zone, "CRON_TZ=") {
		if strings.TrimSpace(rest) == "" { // the parser would panic
			return nil, fmt.Errorf("%w: schedule %.200q is only a time zone", ErrInvalid, every)
		}
		if strings.HasSuffix(zone, "=Local") { // which another worker may read otherwise
			return nil, fmt.Errorf("%w: schedule %.200q in local time", ErrInvalid, every)
		}
	}
	parsed, err := cron.ParseStandard(every)
	if err != nil {
		return nil, fmt.Errorf("%w: schedule %.200q: %w", ErrInvalid, every, err)
	}
	fields, ok := parsed.(*cron.SpecSchedule)
	if !ok {
		return nil, fmt.Errorf("%w: schedule %.200q: an interval has no time zone", ErrInvalid, every)
	}
	if fields.Location == time.Local {
		fields.Location = time.UTC
	}
	return calendar{fields}, nil
}

func parseInterval(text string) (schedule, error) {
	d, err := time.ParseDuration(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("%w: interval: %w", ErrInvalid, err)
	}
	if d < leastInterval || d > mostInterval || d%time.Microsecond != 0 {
		return nil, fmt.Errorf("%w: interval %v is not in whole µs between %v and %v", ErrInvalid, d, leastInterval, mostInterval)
	}
	return interval(d.Microseconds()), nil
}

// An interval, in µs, ticks at its multiples since 1970: whenever it is asked, and
// by whom, the ticks are the same.
type interval int64

func (i interval) next(after time.Time) time.Time {
	past := after.UnixMicro() / int64(i)
	return time.UnixMicro((past + 1) * int64(i)).UTC()
}

// A calendar ticks at the times of day that a cron spec names. The parser's own
// search is not used: where midnight is skipped by a change of the clock it loses
// that day's ticks, and where a whole day is it does not end.
type calendar struct{ *cron.SpecSchedule }

// star is the parser's mark of a field that was given as '*'.
const star = 1 << 63

func (c calendar) next(after time.Time) time.Time {
	year, month, day := after.In(c.Location).Date()
	for i := range yearsAhead * 366 {
		date := time.Date(year, month, day+i, 0, 0, 0, 0, time.UTC) // for its fields alone
		if !c.has(date) {
			continue
		}
		if t := c.on(date, after); !t.IsZero() {
			return t
		}
	}
	return time.Time{}
}

// has reports whether there are ticks on a date.
func (c calendar) has(date time.Time) bool {
	if c.Month>>uint(date.Month())&1 == 0 {
		return false
	}
	ofMonth, ofWeek := c.Dom>>uint(date.Day())&1 == 1, c.Dow>>uint(date.Weekday())&1 == 1
	if c.Dom&star > 0 || c.Dow&star > 0 {
		return ofMonth && ofWeek
	}
	return ofMonth || ofWeek // as cron has it if both are given
}

// on is the first tick on a date after a time, or the zero time.
func (c calendar) on(date, after time.Time) time.Time {
	if c.Hour&star > 0 {
		return c.minuteOn(date, after)
	}
	for hour := range 24 {
		for minute := range 60 {
			if c.Hour>>hour&1 == 0 || c.Minute>>minute&1 == 0 {
				continue
			}
			if t := c.moment(date, hour, minute); t.After(after) {
				return t
			}
		}
	}
	return time.Time{}
}

// minuteOn is on for a spec of every hour, also of one that is there twice.
func (c calendar) minuteOn(date, after time.Time) time.Time {
	t := c.moment(date, 0, 0)
	if !t.After(after) {
		t = after.Truncate(time.Minute).Add(time.Minute)
	}
	for t = t.In(c.Location); t.Day() == date.Day(); t = t.Add(time.Minute) {
		if c.Minute>>t.Minute()&1 == 1 {
			return t
		}
	}
	return time.Time{}
}

// moment is when the clocks show a time of day: the first time if they do twice,
// and when they are put forward if they never do.
func (c calendar) moment(date time.Time, hour, minute int) time.Time {
	t := time.Date(date.Year(), date.Month(), date.Day(), hour, minute, 0, 0, c.Location)
	want := time.Date(date.Year(), date.Month(), date.Day(), hour, minute, 0, 0, time.UTC)
	shown := time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC)
	start, end := t.ZoneBounds()
	switch {
	case shown.After(want):
		return start
	case shown.Before(want):
		return end
	case start.IsZero():
		return t
	}
	_, offset := t.Zone()
	_, before := start.Add(-1).Zone()
	if first := t.Add(time.Duration(offset-before) * time.Second); first.Before(start) {
		return first
	}
	return t
}
