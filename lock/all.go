package lock

import (
	"cmp"
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
// Acquire, and ErrExpired or ErrLost if one was lost while others were waited for.
// With an error all that was taken is released.
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
	leases, err := l.gather(ctx, ttl, names)
	if err == nil && len(leases) > 1 {
		err = leases.Extend(ctx, ttl) // the first have waited for the last
	}
	if err != nil {
		err = cmp.Or(leases.lost(), err)
		_ = leases.Release(ctx)
		return nil, err
	}
	return leases, nil
}

// gather takes one lock after the other, and returns those that it has got.
func (l *Locker) gather(ctx context.Context, ttl time.Duration, names []string) (leases Leases, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, name := range names {
		lease, err := l.Acquire(ctx, name, ttl)
		if err != nil {
			return leases, err
		}
		leases = append(leases, lease)
		if len(names) > 1 {
			lease.keepFor(ctx, cancel)
			defer lease.keepNoLonger()
		}
	}
	return leases, nil
}

// keepFor keeps the lease alive, and ends ctx when it is lost.
func (l *Lease) keepFor(ctx context.Context, cancel context.CancelCauseFunc) {
	l.KeepAlive()
	go func() {
		select {
		case <-l.done:
			cancel(l.Err())
		case <-ctx.Done():
		}
	}()
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
		lease.keepFor(ctx, cancel)
	}
	err := f(ctx)
	if lost := ls.lost(); lost != nil {
		return errors.Join(err, lost)
	}
	return err
}

// lost says which of the leases were lost, and why.
func (ls Leases) lost() error {
	var errs []error
	for _, lease := range ls {
		if err := lease.Err(); endings[err] == Lost {
			errs = append(errs, fmt.Errorf("lock: %q: %w", lease.name, err))
		}
	}
	return errors.Join(errs...)
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
