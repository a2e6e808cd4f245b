package worker

import (
	"context"
	"time"

	"github.com/dulyhq/duly"
)

// A Source is where a worker takes deliveries from and records what became of
// them. A *queue.Queue is one; package workertest has another, in memory, and
// the tests that a Source must pass. Its methods are called concurrently.
type Source interface {
	// Name tells sources apart: in weights, deliveries and logs.
	Name() string

	// Pop leases up to n tasks, 1 to 500, that are due, the earliest first, and
	// reports how long it will be until there may be more. After an error the
	// next Pop brings what this one may have leased.
	Pop(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error)

	// Extend makes leases last for the given time from now, and returns those of
	// the given deliveries, not copies, whose lease is no longer held, and those
	// that were cancelled, whose leases it extends too. Repeating it is harmless.
	Extend(ctx context.Context, ds []*duly.Delivery, lease time.Duration) (lost, cancelled []*duly.Delivery, err error)

	// Settle ends deliveries, and returns those whose lease is no longer held: for
	// them it changes nothing. One that was cancelled is dropped, unless it is
	// acknowledged; one that is repeated without an error is acknowledged then. After
	// an error it may be called again; what had been settled is then reported as lost.
	Settle(ctx context.Context, ss []duly.Settlement) (lost []*duly.Delivery, err error)

	// Progress keeps what a delivery reports of itself, as duly.Reporter says.
	Progress(ctx context.Context, d *duly.Delivery, progress []byte) error

	// Watch calls hint whenever a Pop may bring something sooner than the last
	// one said, with how long it will be until then, until ctx ends; and with
	// zero once it has begun to listen. It calls cancel when a run is cancelled:
	// that of any delivery of the ID whose fence is no higher, which need not be
	// this worker's. Both may be lost.
	Watch(ctx context.Context, hint func(in time.Duration), cancel func(id string, fence uint64))
}
