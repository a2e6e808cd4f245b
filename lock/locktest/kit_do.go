package locktest

import (
	"context"
	"errors"
	"time"

	"github.com/dulyhq/duly/lock"
)

var doCases = []testCase{
	{"Do holds the lock while its function runs", doHolds},
	{"Do returns the error of its function", doReturns},
	{"Do releases if its function panics", doPanics},
	{"Do ends the context with the cause when the lock is lost", doTells},
	{"Do does not run its function without the lock", doWaits},
}

func doHolds(r *rig) {
	mine, theirs := r.pair()
	err := mine.Do(r.soon(), r.name("a"), kept, func(ctx context.Context, lease *lock.Lease) error {
		r.refused(theirs, "a")
		time.Sleep(kept * 3 / 2)
		r.refused(theirs, "a")
		if !lease.Held() || ctx.Err() != nil {
			r.Errorf("after one and a half TTLs: lease %v, context %v", lease.Err(), context.Cause(ctx))
		}
		return nil
	})
	if err != nil {
		r.Errorf("Do: %v", err)
	}
	r.free(theirs, "a")
}

func doReturns(r *rig) {
	mine, theirs := r.pair()
	failed := errors.New("out of stock")
	err := mine.Do(r.soon(), r.name("a"), long, func(context.Context, *lock.Lease) error { return failed })
	r.want("Do", err, failed)
	for _, wrong := range []error{lock.ErrExpired, lock.ErrLost, lock.ErrReleased} {
		if errors.Is(err, wrong) {
			r.Errorf("Do reports a loss that was none: %v", err)
		}
	}
	r.free(theirs, "a")
}

func doPanics(r *rig) {
	mine, theirs := r.pair()
	func() {
		defer func() {
			if got := recover(); got != "out of order" {
				r.Errorf("the panic became %v", got)
			}
		}()
		_ = mine.Do(r.soon(), r.name("a"), long, func(context.Context, *lock.Lease) error { panic("out of order") })
	}()
	r.free(theirs, "a")
}

func doTells(r *rig) {
	mine, theirs := r.pair()
	stopped := errors.New("stopped half-way")
	err := mine.Do(r.soon(), r.name("a"), kept, func(ctx context.Context, lease *lock.Lease) error {
		r.drop(mine)
		r.take(theirs, "a", long)
		r.ended(ctx.Done())
		r.want("Cause of the function's context", context.Cause(ctx), lock.ErrLost)
		r.want("Err of the lease", lease.Err(), lock.ErrLost)
		return stopped
	})
	r.want("Do", err, stopped, lock.ErrLost)
	r.refused(mine, "a") // it is the thief's still
}

func doWaits(r *rig) {
	mine, theirs := r.pair()
	r.take(mine, "a", long)
	ctx, cancel := context.WithTimeout(r.Context(), short)
	defer cancel()
	err := theirs.Do(ctx, r.name("a"), long, func(context.Context, *lock.Lease) error {
		r.Error("the function runs, and another holds the lock")
		return nil
	})
	r.want("Do when its context ends", err, context.DeadlineExceeded)
}
