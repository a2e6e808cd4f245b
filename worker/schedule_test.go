package worker_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"github.com/dulyhq/duly/worker"
)

// ticks returns the first n ticks after a time, as the clocks of the zone show
// them.
func ticks(t *testing.T, every string, after time.Time, n int) []string {
	t.Helper()
	var shown []string
	for range n {
		next, err := worker.NextTick(every, after)
		must(t, err)
		if !next.After(after) {
			t.Fatalf("%q: %v is not after %v", every, next, after)
		}
		after = next
		shown = append(shown, next.Format("01-02 15:04:05.0 -07"))
	}
	return shown
}

func TestNextTick(t *testing.T) {
	t.Parallel()
	for every, c := range map[string]struct {
		after, want string
	}{
		"*/15 9-10 * * 1-5":                    {"2026-03-06T10:30:00Z", "03-06 10:45:00 +00, 03-09 09:00:00 +00, 03-09 09:15:00 +00"},
		"0 0 13 * 5":                           {"2026-03-01T00:00:00Z", "03-06 00:00:00 +00, 03-13 00:00:00 +00, 03-20 00:00:00 +00"}, // the 13th, and Fridays
		"@hourly":                              {"2026-03-01T00:00:00Z", "03-01 01:00:00 +00, 03-01 02:00:00 +00, 03-01 03:00:00 +00"},
		"@monthly":                             {"2026-03-01T00:00:00Z", "04-01 00:00:00 +00, 05-01 00:00:00 +00, 06-01 00:00:00 +00"},
		"0 0 29 2 *":                           {"2096-03-01T00:00:00Z", "02-29 00:00:00 +00, 02-29 00:00:00 +00, 02-29 00:00:00 +00"}, // 2100 has none
		"TZ=Asia/Kathmandu 0 12 * * *":         {"2026-03-01T06:14:59Z", "03-01 12:00:00 +05, 03-02 12:00:00 +05, 03-03 12:00:00 +05"},
		"@every 10m":                           {"2026-03-01T00:17:23Z", "03-01 00:20:00 +00, 03-01 00:30:00 +00, 03-01 00:40:00 +00"},
		"@every 1.5s":                          {"2026-03-01T00:00:00Z", "03-01 00:00:01.5 +00, 03-01 00:00:03 +00, 03-01 00:00:04.5 +00"},
		"CRON_TZ=Europe/Berlin 30 2 * * *":     {"2026-03-28T00:00:00Z", "03-28 02:30:00 +01, 03-29 03:00:00 +02, 03-30 02:30:00 +02"}, // in the gap
		"CRON_TZ=Europe/Berlin 0,30 2,3 * * *": {"2026-03-29T00:00:00Z", "03-29 03:00:00 +02, 03-29 03:30:00 +02, 03-30 02:00:00 +02"},
		"CRON_TZ=Europe/Berlin 30 2 */1 * *":   {"2026-10-24T12:00:00Z", "10-25 02:30:00 +02, 10-26 02:30:00 +01, 10-27 02:30:00 +01"}, // twice
		"CRON_TZ=Europe/Berlin 30 * * * *":     {"2026-10-24T23:45:00Z", "10-25 02:30:00 +02, 10-25 02:30:00 +01, 10-25 03:30:00 +01"},
		"CRON_TZ=Europe/Berlin 45 * * * *":     {"2026-03-29T00:00:00Z", "03-29 01:45:00 +01, 03-29 03:45:00 +02, 03-29 04:45:00 +02"},
		"CRON_TZ=Australia/Lord_Howe 15 2 * * *": { // half an hour
			"2026-10-03T00:00:00Z", "10-04 02:30:00 +11, 10-05 02:15:00 +11, 10-06 02:15:00 +11",
		},
		"CRON_TZ=America/Sao_Paulo 0 0 * * *": {"2018-11-03T12:00:00Z", "11-04 01:00:00 -02, 11-05 00:00:00 -02, 11-06 00:00:00 -02"}, // no midnight
		"CRON_TZ=Africa/Cairo 0 6 28 4 *":     {"2023-04-20T00:00:00Z", "04-28 06:00:00 +03, 04-28 06:00:00 +03, 04-28 06:00:00 +03"}, // the parser's own search loses 2023
		"CRON_TZ=Pacific/Apia 0 12 30 * *":    {"2011-12-20T00:00:00Z", "12-31 00:00:00 +14, 01-30 12:00:00 +14, 03-30 12:00:00 +14"}, // no 30 December; there it does not end
	} {
		after, err := time.Parse(time.RFC3339, c.after)
		must(t, err)
		if got := strings.ReplaceAll(strings.Join(ticks(t, every, after, 3), ", "), ".0 ", " "); got != c.want {
			t.Errorf("%q after %s:\ngot  %s\nwant %s", every, c.after, got, c.want)
		}
	}
}

func TestBadSchedulesAreRefused(t *testing.T) {
	t.Parallel()
	for _, every := range []string{
		"", " ", "@", "@every", "@every ", "@every 10", "@every -1h", "@every 0s", "@every 99ms", "@every 8785h", "@every 100.0001ms",
		"@reboot", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-1 * * * *", "*/0 * * * *",
		"TZ=", "TZ=UTC", "CRON_TZ=UTC ", "CRON_TZ=Mars/Base 0 0 * * *", "TZ=Local 0 0 * * *", "CRON_TZ=UTC @every 1h",
		"CRON_TZ=../../etc/passwd 0 0 * * *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "\xff", strings.Repeat("9", 1000),
	} {
		if next, err := worker.NextTick(every, time.Now()); !errors.Is(err, worker.ErrInvalid) || !next.IsZero() {
			t.Errorf("%q: got %v, %v", every, next, err)
		}
	}
}

// Where clocks never change, and within its five years, the parser's own search is
// right.
func TestTicksInUTCAreThoseOfTheParsersOwnSearch(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	field := func(least, most int) string {
		n := least + rng.IntN(most-least+1)
		switch rng.IntN(5) {
		case 0:
			return fmt.Sprint(n)
		case 1:
			return fmt.Sprintf("%d-%d", n, n+rng.IntN(most-n+1))
		case 2:
			return fmt.Sprintf("*/%d", 1+rng.IntN(most))
		}
		return "*"
	}
	for range 2000 {
		every := strings.Join([]string{field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 6)}, " ")
		theirs, err := cron.ParseStandard(every)
		must(t, err)
		after := time.Unix(rng.Int64N(4e9), rng.Int64N(1e9)).UTC()
		for range 3 {
			want := theirs.Next(after)
			got, err := worker.NextTick(every, after)
			must(t, err)
			if !got.Equal(want) {
				t.Fatalf("%q after %v: got %v, want %v", every, after, got, want)
			}
			after = want
		}
	}
}

// In zones that change their clocks in many ways a fixed time of day has one tick on
// each day, and ticks of every hour are an hour apart.
func TestEachDayHasItsTick(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{
		"UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Africa/Cairo", "Asia/Beirut", "Australia/Lord_Howe",
		"America/Havana", "Asia/Tehran", "Africa/Casablanca", "Pacific/Chatham", "America/Asuncion",
	} {
		loc, err := time.LoadLocation(zone)
		must(t, err)
		for _, minute := range []int{0, 2*60 + 30} {
			every := fmt.Sprintf("CRON_TZ=%s %d %d * * *", zone, minute%60, minute/60)
			last := time.Date(2024, 1, 1, 0, 0, 0, 0, loc).Add(-time.Second)
			for day := time.Date(2024, 1, 1, 12, 0, 0, 0, loc); day.Year() < 2025; day = day.AddDate(0, 0, 1) {
				next, err := worker.NextTick(every, last)
				must(t, err)
				late := next.Sub(time.Date(day.Year(), day.Month(), day.Day(), minute/60, minute%60, 0, 0, loc)).Abs()
				if late > time.Hour { // which is what a gap has
					t.Fatalf("%q after %v: %v, want it on %v", every, last, next, day)
				}
				last = next
			}
		}
		last := time.Date(2024, 3, 1, 0, 0, 0, 0, loc) // most change in spring or in autumn then
		for last.Month() < time.May {
			next, err := worker.NextTick("CRON_TZ="+zone+" @hourly", last)
			must(t, err)
			if apart := next.Sub(last); apart != time.Hour && zone != "Australia/Lord_Howe" && zone != "Pacific/Chatham" {
				t.Fatalf("%s: %v after %v", zone, next, last)
			}
			last = next
		}
	}
}
