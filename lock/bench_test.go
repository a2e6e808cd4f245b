package lock_test

import (
	"testing"
	"time"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
)

func BenchmarkAcquireRelease(b *testing.B) {
	locker, err := lock.New(redistest.Start(b).Client(), lock.Config{})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		lease, err := locker.Acquire(b.Context(), "a", time.Minute)
		if err != nil {
			b.Fatal(err)
		}
		if err := lease.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
