package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	logging.Disable() // the client asks for what miniredis does not know
	goleak.VerifyTestMain(m)
}

// What the show says holds on a slow machine too: who sweeps, and whether it is on
// time, is not looked at, but for the one that must be late.
func TestTheShowSaysWhatHappens(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^Three workers .*
(  [abc] sweeps the baskets, .*\n){4}It is one task in the queue: 1 due or running.
All three stop .*
Another worker .*
(  [abc] sweeps the baskets, .*\n)*  d sweeps the baskets, late by .*
(  d sweeps the baskets, .*\n){0,2}A worker of the next release .*
  sweep:baskets, every "600ms"
It is cancelled.
  It is gone.
$`)
	if !want.MatchString(out.String()) {
		t.Errorf("it says\n%s", out.String())
	}
}
