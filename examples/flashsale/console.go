package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// A console is the standard error of a sale: one line that changes on a
// terminal, a plain line a second elsewhere, and the words of the workers.
type console struct {
	live bool // a terminal

	mu    sync.Mutex // guards what follows
	w     io.Writer
	shown bool // the live line is there
}

func newConsole(w io.Writer) *console {
	c := &console{w: w}
	if file, ok := w.(*os.File); ok {
		if info, err := file.Stat(); err == nil {
			c.live = info.Mode()&os.ModeCharDevice != 0
		}
	}
	return c
}

// clearLine goes to the start of a terminal's line and empties it.
const clearLine = "\r\x1b[K"

// Write writes text above the live line, which is back with the next status.
func (c *console) Write(text []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hide()
	return c.w.Write(text)
}

func (c *console) hide() {
	if c.shown {
		_, _ = io.WriteString(c.w, clearLine)
		c.shown = false
	}
}

// warn says what went wrong.
func (c *console) warn(err error) { _, _ = fmt.Fprintf(c, "flashsale: %v\n", err) }

// show shows the status line.
func (c *console) show(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.live {
		_, _ = io.WriteString(c.w, line+"\n")
		return
	}
	_, _ = io.WriteString(c.w, clearLine+line)
	c.shown = true
}

// run shows the status until ctx ends, and takes the live line away.
func (c *console) run(ctx context.Context, status func() string) {
	every := time.Second
	if c.live {
		every = 100 * time.Millisecond
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.show(status())
		case <-ctx.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			c.hide()
			return
		}
	}
}

// statusLine is the sale at a moment, within 100 columns as long as the numbers
// are those of the defaults.
func statusLine(since time.Duration, s *snapshot, turnedAway int64) string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "%4.1fs", since.Seconds())
	for _, shelf := range s.Shelves {
		_, _ = fmt.Fprintf(&b, " | %s %d/%d paid", shelf.Item, shelf.Paid+shelf.Shipped, shelf.Goods)
	}
	_, _ = fmt.Fprintf(&b, " | tasks %d due %d run | %d sold out", s.Tasks.Due, s.Tasks.Leased, turnedAway)
	if s.Err != nil {
		_, _ = fmt.Fprintf(&b, " | no newer word: %v", s.Err)
	}
	return b.String()
}
