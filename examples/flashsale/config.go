package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// An item is a thing on sale.
type item struct {
	Name  string
	Goods int
}

// A config says what kind of sale to hold.
type config struct {
	Buyers    int
	Phones    int
	Earphones int
	Rush      time.Duration
	Deadline  time.Duration
	Unpaid    int // %
	Late      int // %
	Fail      int // %
	Workers   int
	Kill      int
	Lease     time.Duration
	Addr      string
	JSON      bool

	DatabaseURL, RedisURL string // from the environment
}

func (c *config) items() []item {
	return []item{{"phone", c.Phones}, {"earphones", c.Earphones}}
}

const usage = `flashsale holds a sale: a shop over HTTP, a crowd of buyers, and worker processes
that cancel what is not paid and ship what is. Its report says whether it held.

  DATABASE_URL  a PostgreSQL to use in place of an SQLite file
  REDIS_URL     a Redis to use in place of the embedded one

`

// parse reads the command line. After flag.ErrHelp it has printed the help.
func parse(args []string, help io.Writer) (config, error) {
	c := config{DatabaseURL: os.Getenv("DATABASE_URL"), RedisURL: os.Getenv("REDIS_URL")}
	f := flag.NewFlagSet("flashsale", flag.ContinueOnError)
	f.SetOutput(io.Discard) // one clear line about a mistake, from whoever called
	f.IntVar(&c.Buyers, "buyers", 20_000, "`number` of buyers; half want a phone, half earphones")
	f.IntVar(&c.Phones, "phones", 10, "`number` of phones on sale")
	f.IntVar(&c.Earphones, "earphones", 1_000, "`number` of pairs of earphones on sale")
	f.DurationVar(&c.Rush, "rush", 2*time.Second, "`time` within which all buyers come for the first time")
	f.DurationVar(&c.Deadline, "deadline", 2*time.Second, "`time` to pay before an order is cancelled; a real shop gives 15m")
	f.IntVar(&c.Unpaid, "unpaid", 15, "`percent` of the winners who never pay")
	f.IntVar(&c.Late, "late", 10, "`percent` of the winners who pay right at the deadline")
	f.IntVar(&c.Fail, "fail", 20, "`percent` of the attempts to ship that fail, 90 at most")
	f.IntVar(&c.Workers, "workers", 3, "`number` of worker processes")
	f.IntVar(&c.Kill, "kill", 1, "`number` of them to kill in the middle of the sale; never the only one by default")
	f.DurationVar(&c.Lease, "lease", 2*time.Second, "`time` after which a dead worker's tasks run again")
	f.StringVar(&c.Addr, "addr", "127.0.0.1:0", "`address` of the shop and its live page")
	f.BoolVar(&c.JSON, "json", false, "print the report as one line of JSON")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			_, _ = io.WriteString(help, usage)
			f.SetOutput(help)
			f.PrintDefaults()
		}
		return c, err
	}
	if f.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	killGiven := false
	f.Visit(func(f *flag.Flag) { killGiven = killGiven || f.Name == "kill" })
	if c.Workers == 1 && !killGiven {
		c.Kill = 0
	}
	return c, c.validate()
}

// validate names the first flag that cannot be.
func (c *config) validate() error {
	for _, n := range []struct {
		flag            string
		is, least, most int
	}{
		{"buyers", c.Buyers, 1, 1_000_000},
		{"phones", c.Phones, 0, 1_000_000},
		{"earphones", c.Earphones, 0, 1_000_000},
		{"unpaid", c.Unpaid, 0, 100},
		{"late", c.Late, 0, 100},
		{"fail", c.Fail, 0, 90},
		{"workers", c.Workers, 1, 64},
	} {
		if n.is < n.least || n.is > n.most {
			return fmt.Errorf("-%s %d is not between %d and %d", n.flag, n.is, n.least, n.most)
		}
	}
	if c.Unpaid+c.Late > 100 {
		return fmt.Errorf("-unpaid %d and -late %d are over 100 percent together", c.Unpaid, c.Late)
	}
	if c.Kill < 0 || c.Kill >= c.Workers {
		return fmt.Errorf("-kill %d: need 0 or more, and one of the %d workers left", c.Kill, c.Workers)
	}
	for _, d := range []struct {
		flag            string
		is, least, most time.Duration
	}{
		{"rush", c.Rush, 0, time.Hour},
		{"deadline", c.Deadline, 100 * time.Millisecond, 24 * time.Hour},
		{"lease", c.Lease, 500 * time.Millisecond, time.Hour},
	} {
		if d.is < d.least || d.is > d.most {
			return fmt.Errorf("-%s %v is not between %v and %v", d.flag, d.is, d.least, d.most)
		}
	}
	if c.DatabaseURL != "" && !strings.HasPrefix(c.DatabaseURL, "postgres://") && !strings.HasPrefix(c.DatabaseURL, "postgresql://") {
		return errors.New("DATABASE_URL is not of the form postgres://user:password@host/database")
	}
	return nil
}
