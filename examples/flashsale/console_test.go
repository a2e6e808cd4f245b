package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dulyhq/duly/queue"
)

func TestConsoleKeepsWordsApartFromTheLiveLine(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := newConsole(&out)
	c.live = true
	c.show("one")
	c.show("two")
	c.warn(errors.New("trouble"))
	c.show("three")
	want := clearLine + "one" + clearLine + "two" + clearLine + "flashsale: trouble\n" + clearLine + "three"
	if out.String() != want {
		t.Errorf("got %q, want %q", &out, want)
	}
}

func TestConsoleThatIsNoTerminalGetsPlainLines(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	c := newConsole(&out)
	c.show("one")
	c.warn(errors.New("trouble"))
	c.show("two")
	if want := "one\nflashsale: trouble\ntwo\n"; out.String() != want {
		t.Errorf("got %q, want %q", &out, want)
	}
}

func TestStatusLineFitsATerminal(t *testing.T) {
	t.Parallel()
	line := statusLine(12345*time.Millisecond, &snapshot{
		Shelves: []shelf{{Item: "phone", Goods: 10, Paid: 3, Shipped: 7}, {Item: "earphones", Goods: 1000, Shipped: 999}},
		Tasks:   queue.Stats{Due: 850, Leased: 36},
	}, 18_990)
	if len(line) > 100 || !strings.Contains(line, "phone 10/10 paid") || !strings.Contains(line, "18990 sold out") {
		t.Errorf("%d bytes: %s", len(line), line)
	}
	late := statusLine(time.Second, &snapshot{Err: errors.New("no route")}, 0)
	if !strings.Contains(late, "no route") {
		t.Errorf("a board that is old does not say so: %s", late)
	}
}
