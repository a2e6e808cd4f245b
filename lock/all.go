package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// MaxNames is how many names AcquireAll takes.
const MaxNames = 100

// Leases are what is held on several names, in the order of the names as
// strings.
type Leases []*Lease

// AcquireAll takes the locks of several names for ttl, or none of them: an order
// and the stock that it reduces. It waits until ctx ends, takes the names in the
// same order as every other call, so that two never wait for each other, and
// keeps alive what it has while it waits for the rest. A name that is given twice
// is taken once. The leases are not renewed by themselves. Errors are those of
// Acquire; none of the names is then held.
func (l *Locker) AcquireAll(ctx context.Context, ttl time.Duration, names ...string) (Leases, error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	if len(names) == 0 || len(names) > MaxNames {
		return nil, fmt.Errorf("lock: acquire: %w: %d names, not between 1 and %d", ErrInvalid, len(names), MaxNames)
	}
	for _, name := range names {
		if err := check(name, ttl); err != nil {
			return nil, fmt.Errorf("lock: acquire: %w", err)
		}
	}
	leases := make(Leases, 0, len(names))
	for _, name := range names {
		lease, err := l.Acquire(ctx, name, ttl)
		if err != nil {
			_ = leases.Release(ctx)
			return nil, err
		}
		leases = append(leases, lease)
		if len(names) > 1 {
			lease.KeepAlive()
		}
	}
	if err := leases.settle(ctx, ttl); err != nil {
		_ = leases.Release(ctx)
		return nil, err
	}
	return leases, nil
}

// settle makes leases that were kept alive while others were waited for last for
// ttl, and no longer.
func (ls Leases) settle(ctx context.Context, ttl time.Duration) error {
	if len(ls) == 1 {
		return nil
	}
	for _, lease := range ls {
		lease.keepNoLonger()
	}
	return ls.Extend(ctx, ttl)
}

// DoAll runs f while holding the locks of several names, taken as by AcquireAll.
// All else is as in Do: the context of f ends when one of them is lost.
func (l *Locker) DoAll(ctx context.Context, ttl time.Duration, f func(context.Context, Leases) error, names ...string) error {
	leases, err := l.AcquireAll(ctx, ttl, names...)
	if err != nil {
		return err
	}
	return leases.do(ctx, func(ctx context.Context) error { return f(ctx, leases) })
}

// do runs f while the leases are held and kept alive.
func (ls Leases) do(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer func() {
		cancel(nil)
		_ = ls.Release(ctx) // which has ended, so it is not waited for long
	}()
	for _, lease := range ls {
		lease.KeepAlive()
		go func() {
			select {
			case <-lease.done:
				cancel(lease.Err())
			case <-ctx.Done():
			}
		}()
	}
	err := f(ctx)
	for _, lease := range ls {
		if lost := lease.Err(); lost != nil && !errors.Is(lost, ErrReleased) {
			err = errors.Join(err, fmt.Errorf("lock: %q: %w", lease.name, lost))
		}
	}
	return err
}

// Lease is the lease on a name, or nil.
func (ls Leases) Lease(name string) *Lease {
	for _, lease := range ls {
		if lease.name == name {
			return lease
		}
	}
	return nil
}

// Extend extends all the leases, as Lease.Extend does, and joins the errors.
func (ls Leases) Extend(ctx context.Context, ttl time.Duration) error {
	return ls.each(func(lease *Lease) error { return lease.Extend(ctx, ttl) })
}

// Release gives all the locks up, as Lease.Release does, and joins the errors.
func (ls Leases) Release(ctx context.Context) error {
	return ls.each(func(lease *Lease) error { return lease.Release(ctx) })
}

// each calls f for all the leases side by side.
func (ls Leases) each(f func(*Lease) error) error {
	errs := make([]error, len(ls))
	var all sync.WaitGroup
	for i, lease := range ls {
		all.Go(func() { errs[i] = f(lease) })
	}
	all.Wait()
	return errors.Join(errs...)
}
