package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
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
			b.last.Store(&snapshot{Shelves: []shelf{{Item: "phone", Paid: n + 1}}})
		}
		<-moving.Done() // and then nothing
		if took := time.Since(start); took < 55*time.Second || took > 56*time.Second {
			t.Errorf("ended after %v, want 10 s after the last change at 45 s", took)
		}
		if !errors.Is(context.Cause(moving), errStalled) {
			t.Errorf("ended because of %v", context.Cause(moving))
		}
	})
}
