package locktest_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/locktest"
)

// inBubble runs a test in virtual time.
func inBubble(t *testing.T, test func(*testing.T, *locktest.Fake)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, locktest.New(t, lock.Config{})) })
}

func take(t *testing.T, l *lock.Locker, name string, ttl time.Duration) *lock.Lease {
	t.Helper()
	lease, err := l.TryAcquire(t.Context(), name, ttl)
	must(t, err)
	return lease
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants fails the test unless err matches each of the targets.
func wants(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Fatalf("got error %v, want one that matches %q", err, target)
		}
	}
}

func TestTimeIsExact(t *testing.T) {
	inBubble(t, func(t *testing.T, fake *locktest.Fake) {
		const ttl = 100 * 24 * time.Hour
		start := time.Now()
		take(t, fake.Locker(), "a", ttl)
		other := fake.Another()
		time.Sleep(ttl - time.Millisecond)
		_, err := other.TryAcquire(t.Context(), "a", time.Second)
		held, ok := errors.AsType[*lock.HeldError](err)
		if !ok || held.RetryAfter != time.Millisecond {
			t.Fatalf("1 ms before its end: %v", err)
		}
		time.Sleep(time.Millisecond)
		take(t, other, "a", time.Second)
		if took := time.Since(start); took != ttl {
			t.Errorf("a lock of %v was free after %v", ttl, took)
		}
	})
}

func TestStealIsToldAtTheNextRenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, fake *locktest.Fake) {
		err := fake.Locker().Do(t.Context(), "a", 30*time.Second, func(ctx context.Context, lease *lock.Lease) error {
			time.Sleep(time.Minute)
			thief := fake.Steal("a", time.Hour)
			stolen := time.Now()
			<-ctx.Done()
			wants(t, context.Cause(ctx), lock.ErrLost)
			if took := time.Since(stolen); took > 10*time.Second {
				t.Errorf("told after %v, a renewal is due every 10 s", took)
			}
			if thief.Fence() <= lease.Fence() {
				t.Errorf("the thief's fence is %d, that of the robbed %d", thief.Fence(), lease.Fence())
			}
			return nil
		})
		wants(t, err, lock.ErrLost)
	})
}

func TestStolenLockIsGivenUpByItsThief(t *testing.T) {
	inBubble(t, func(t *testing.T, fake *locktest.Fake) {
		thief := fake.Steal("nobody's", time.Hour) // also a free lock can be taken
		_, err := fake.Locker().TryAcquire(t.Context(), "nobody's", time.Second)
		wants(t, err, lock.ErrHeld)
		must(t, thief.Release(t.Context()))
		take(t, fake.Locker(), "nobody's", time.Second)
	})
}

// A thief is quicker than those who wait.
func TestStealFromAmongWaiters(t *testing.T) {
	inBubble(t, func(t *testing.T, fake *locktest.Fake) {
		robbed := take(t, fake.Locker(), "a", time.Hour)
		waiting, other := make(chan *lock.Lease), fake.Another()
		go func() {
			defer close(waiting)
			lease, err := other.Acquire(t.Context(), "a", time.Hour)
			if err != nil {
				t.Error(err)
			}
			waiting <- lease
		}()
		time.Sleep(time.Second)
		thief := fake.Steal("a", time.Hour)
		wants(t, robbed.Extend(t.Context(), time.Hour), lock.ErrLost)
		must(t, thief.Release(t.Context()))
		if lease := <-waiting; lease == nil || lease.Fence() <= thief.Fence() {
			t.Errorf("after the thief: %v", lease)
		}
	})
}

func TestDropIsToldAtTheNextExtension(t *testing.T) {
	inBubble(t, func(t *testing.T, fake *locktest.Fake) {
		lease := take(t, fake.Locker(), "a", time.Hour)
		fake.Drop("a")
		if !lease.Held() {
			t.Error("the holder knows before it has asked")
		}
		take(t, fake.Another(), "a", time.Second)
		wants(t, lease.Extend(t.Context(), time.Hour), lock.ErrLost)
		fake.Drop("never held")
	})
}

func TestBrokenProcessLosesItsLeaseToAnother(t *testing.T) {
	for story, cut := range map[string]func(*locktest.Fake){"broken": (*locktest.Fake).Break, "silent": (*locktest.Fake).Hang} {
		t.Run(story, func(t *testing.T) {
			inBubble(t, func(t *testing.T, fake *locktest.Fake) {
				lease := take(t, fake.Locker(), "a", 30*time.Second)
				lease.KeepAlive()
				time.Sleep(time.Hour + 5*time.Second) // between two renewals
				if !lease.Held() {
					t.Fatalf("it ended before the link broke: %v", lease.Err())
				}
				cut(fake)
				start := time.Now()
				other := fake.Another()
				_, err := other.TryAcquire(t.Context(), "a", time.Minute)
				wants(t, err, lock.ErrHeld)
				_, err = other.Acquire(t.Context(), "a", time.Minute)
				must(t, err)
				wants(t, lease.Err(), lock.ErrExpired)
				if took := time.Since(start); took > 30*time.Second { // it was renewed 5 s before
					t.Errorf("another got it after %v: renewals went through", took)
				}

				fake.Mend()
				_, err = fake.Locker().TryAcquire(t.Context(), "a", time.Minute)
				wants(t, err, lock.ErrHeld)
				_, err = fake.Locker().Acquire(t.Context(), "a", time.Minute)
				must(t, err)
			})
		})
	}
}

func TestLeaseSurvivesAShortBreak(t *testing.T) {
	for story, cut := range map[string]func(*locktest.Fake){"broken": (*locktest.Fake).Break, "silent": (*locktest.Fake).Hang} {
		t.Run(story, func(t *testing.T) {
			inBubble(t, func(t *testing.T, fake *locktest.Fake) {
				lease := take(t, fake.Locker(), "a", 30*time.Second)
				lease.KeepAlive()
				time.Sleep(9 * time.Second) // the renewal at 10 s is lost
				cut(fake)
				time.Sleep(5 * time.Second)
				fake.Mend()
				time.Sleep(time.Hour)
				if !lease.Held() {
					t.Errorf("it ended: %v", lease.Err())
				}
				must(t, lease.Release(t.Context()))
			})
		})
	}
}

func TestBrokenFailsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, fake *locktest.Fake) {
		lease := take(t, fake.Locker(), "a", time.Hour)
		fake.Break()
		start := time.Now()
		// The first call finds its connection ended, and cannot know that before it
		// has sent. The next are refused one.
		_, err := fake.Locker().Acquire(t.Context(), "b", time.Hour)
		wants(t, err, lock.ErrUnknownOutcome)
		_, err = fake.Locker().Acquire(t.Context(), "b", time.Hour)
		wants(t, err, syscall.ECONNREFUSED)
		if errors.Is(err, lock.ErrHeld) || errors.Is(err, lock.ErrUnknownOutcome) {
			t.Errorf("Acquire: %v, want a plain refusal", err)
		}
		wants(t, lease.Extend(t.Context(), time.Hour), syscall.ECONNREFUSED)
		if !lease.Held() {
			t.Errorf("the lease ended: %v", lease.Err())
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("refused after %v", took)
		}
		fake.Mend()
		must(t, lease.Extend(t.Context(), time.Hour))
	})
}

func TestSilenceIsWaitedOut(t *testing.T) {
	inBubble(t, func(t *testing.T, fake *locktest.Fake) {
		lease := take(t, fake.Locker(), "a", time.Hour)
		fake.Hang()
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		_, err := fake.Locker().TryAcquire(ctx, "b", time.Hour)
		wants(t, err, lock.ErrUnknownOutcome, context.DeadlineExceeded)
		if took := time.Since(start); took != 20*time.Second {
			t.Errorf("TryAcquire within 20 s took %v", took)
		}
		for _, call := range []func(context.Context) error{
			func(ctx context.Context) error { return lease.Extend(ctx, time.Hour) }, lease.Release,
		} {
			start = time.Now()
			wants(t, call(t.Context()), lock.ErrUnknownOutcome)
			if took := time.Since(start); took > 5100*time.Millisecond {
				t.Errorf("Extend or Release took %v, want 5 s at most", took)
			}
		}
	})
}

// Who waits when the link is mended does not wait for what was lost before.
func TestMendEndsWaitingForLostReplies(t *testing.T) {
	inBubble(t, func(t *testing.T, fake *locktest.Fake) {
		fake.Hang()
		go func() {
			time.Sleep(time.Second)
			fake.Mend()
		}()
		start := time.Now()
		take(t, fake.Locker(), "a", time.Hour)
		if took := time.Since(start); took > 1100*time.Millisecond {
			t.Errorf("it took %v, mended after a second", took)
		}
	})
}

// What a test leaves behind ends with it, in whatever state the link is: else the
// bubble would never end, and TestMain would find goroutines.
func TestEverythingEndsWithTheTest(t *testing.T) {
	t.Parallel()
	for story, cut := range map[string]func(*locktest.Fake){
		"whole": func(*locktest.Fake) {}, "broken": (*locktest.Fake).Break, "silent": (*locktest.Fake).Hang,
	} {
		t.Run(story, func(t *testing.T) {
			t.Parallel()
			leaveBehind(t, cut)
		})
		t.Run(story+" in a bubble", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				end := time.Now()
				t.Cleanup(func() { // after the fake's own
					if took := time.Since(end); took > 0 {
						t.Errorf("the end took %v", took)
					}
				})
				leaveBehind(t, cut)
			})
		})
	}
}

func leaveBehind(t *testing.T, cut func(*locktest.Fake)) {
	fake := locktest.New(t, lock.Config{})
	held := take(t, fake.Locker(), "a", time.Hour)
	held.KeepAlive()
	fake.Steal("b", time.Hour).KeepAlive()
	waiter := fake.Another()
	go func() { _, _ = waiter.Acquire(t.Context(), "a", time.Hour) }()
	must(t, fake.Client().Set(t.Context(), "k", "v", 0).Err())
	cut(fake)
	t.Cleanup(func() { // before the fake's own
		if !held.Held() {
			t.Error("it was released before the test's own clean-ups")
		}
	})
}
