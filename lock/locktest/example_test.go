package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/locktest"
)

// A till is what is tested: it sells phones, one buyer at a time, and takes the
// locker that it is given.
type till struct {
	locker  *lock.Locker
	shelf   *shelf
	payment func(ctx context.Context) error
}

func (t *till) sell(ctx context.Context) error {
	return t.locker.Do(ctx, "phones", 600*time.Millisecond, func(ctx context.Context, lease *lock.Lease) error {
		left := t.shelf.phones
		if err := t.payment(ctx); err != nil {
			return fmt.Errorf("not sold: %w", err)
		}
		return t.shelf.set(left-1, lease.Fence())
	})
}

// A shelf refuses a seller who has lost the lock to another that wrote since.
type shelf struct {
	phones int
	fence  uint64
}

var errLate = errors.New("a later holder has written")

func (s *shelf) set(phones int, fence uint64) error {
	if fence < s.fence {
		return errLate
	}
	s.phones, s.fence = phones, fence
	return nil
}

// exampleT stands for the t of your test.
type exampleT struct {
	testing.TB
	ends []func()
}

func (t *exampleT) Helper()            {}
func (t *exampleT) Cleanup(end func()) { t.ends = append(t.ends, end) }

func (t *exampleT) end() {
	for i := range t.ends {
		t.ends[len(t.ends)-1-i]()
	}
}

// The lock is taken from a seller who waits for a payment. Its context ends with
// the cause, and nothing is sold.
func Example() {
	t := new(exampleT)
	defer t.end()
	fake := locktest.New(t, lock.Config{})
	shop := &till{locker: fake.Locker(), shelf: &shelf{phones: 10}}

	shop.payment = func(ctx context.Context) error {
		fake.Steal("phones", time.Minute)
		<-ctx.Done() // the next renewal finds out
		return context.Cause(ctx)
	}
	err := shop.sell(context.Background())
	fmt.Println("lost:", errors.Is(err, lock.ErrLost))
	fmt.Println("phones:", shop.shelf.phones)
	// Output:
	// lost: true
	// phones: 10
}

// A seller that does not look at its context writes although its lock is
// another's. The fence of the thief lets the shelf refuse it.
func ExampleFake_Steal() {
	t := new(exampleT)
	defer t.end()
	fake := locktest.New(t, lock.Config{})
	shop := &till{locker: fake.Locker(), shelf: &shelf{phones: 10}}

	shop.payment = func(context.Context) error {
		thief := fake.Steal("phones", time.Minute)
		return shop.shelf.set(9, thief.Fence())
	}
	err := shop.sell(context.Background())
	fmt.Println("refused:", errors.Is(err, errLate))
	fmt.Println("phones:", shop.shelf.phones)
	// Output:
	// refused: true
	// phones: 9
}

// A process that is cut off stops by its own clock, before another gets the lock.
func ExampleFake_Hang() {
	t := new(exampleT)
	defer t.end()
	fake := locktest.New(t, lock.Config{})
	shop := &till{locker: fake.Locker(), shelf: &shelf{phones: 10}}

	shop.payment = func(ctx context.Context) error {
		fake.Hang()
		defer fake.Mend()
		<-ctx.Done()
		next, err := fake.Another().Acquire(context.Background(), "phones", time.Minute)
		fmt.Println("another has the lock:", err == nil && next.Held())
		return context.Cause(ctx)
	}
	err := shop.sell(context.Background())
	fmt.Println("expired:", errors.Is(err, lock.ErrExpired))
	// Output:
	// another has the lock: true
	// expired: true
}
