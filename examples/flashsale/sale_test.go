package main

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dulyhq/duly"
)

func TestASaleThatLostAnOrderEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const patience = 10 * time.Second
		b := newBoard(nil, nil)
		start := time.Now()
		moving, stop := whileMoving(t.Context(), b, patience)
		defer stop()
		for n := range 5 { // something happens every 9 s
			time.Sleep(9 * time.Second)
			next := *b.snapshot()
			if n%2 == 0 {
				next.Shelves = []shelf{{Item: "phone", Paid: n + 1}}
			} else {
				next.Tasks.Counters = map[string]int64{"retry": int64(n)}
			}
			b.last.Store(&next)
		}
		for range 5 { // and then nothing but the stock audit
			time.Sleep(time.Second)
			next := *b.snapshot()
			next.Tasks.Counters = maps.Clone(next.Tasks.Counters)
			next.Tasks.Counters[string(duly.Repeated)]++
			b.last.Store(&next)
		}
		<-moving.Done()
		if took := time.Since(start); took < 55*time.Second || took > 56*time.Second {
			t.Errorf("ended after %v, want 10 s after the last change at 45 s", took)
		}
		if !errors.Is(context.Cause(moving), errStalled) {
			t.Errorf("ended because of %v", context.Cause(moving))
		}
	})
}
