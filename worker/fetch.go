package worker

import (
	"context"
	"time"

	"github.com/dulyhq/duly"
)

// pollMost bounds how long a fetcher sleeps: a hint that was lost costs this
// much at most. It sleeps no longer than a lease either, so as to see those of
// other workers before they run out.
const pollMost = 5 * time.Second

// callMost bounds one call of a source.
const callMost = 5 * time.Second

// A fetcher pops what is due from one source, as far as there are slots.
type fetcher struct {
	source  Source
	lease   time.Duration
	slots   *slots
	share   *share
	keeper  *keeper
	settler *settler
	backlog *backlog
	health  *health
	hints   hints
}

// run pops until ctx ends. A pop on its way is not abandoned then, for its tasks
// would wait for their leases to run out; it has until lasting ends.
func (f *fetcher) run(ctx, lasting context.Context) {
	var failing pause
	for {
		n := f.slots.take(ctx, f.share)
		if n == 0 || ctx.Err() != nil {
			return
		}
		got, wait, err := f.pop(lasting, n)
		f.slots.refund(f.share, n-got)
		if lasting.Err() == nil {
			f.health.report(err)
		}
		switch {
		case err != nil:
			failing.wait(ctx)
			continue
		case got < n:
			f.hints.sleep(ctx, min(wait, pollMost, f.lease))
		}
		failing.reset()
	}
}

// pop takes up to n deliveries on board.
func (f *fetcher) pop(ctx context.Context, n int) (got int, wait time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, min(callMost, f.lease/2))
	defer cancel()
	f.hints.clear()
	f.keeper.expect()
	defer f.keeper.expected()
	sent := time.Now()
	deliveries, wait, err := f.source.Pop(ctx, n, f.lease)
	if err != nil || len(deliveries) == 0 {
		return 0, wait, err
	}
	f.board(deliveries, sent)
	return len(deliveries), wait, nil
}

func (f *fetcher) board(deliveries []*duly.Delivery, sent time.Time) {
	now := time.Now()
	flights := make([]*flight, len(deliveries))
	for i, d := range deliveries {
		d.ReportTo(f.source)
		flights[i] = new(flight) // each for itself: one that stays would keep all payloads
		flights[i].Delivery, flights[i].settler, flights[i].fetched, flights[i].queued = d, f.settler, now, now
		flights[i].until, flights[i].renewal = leaseEnd(sent, f.lease), sent.Add(f.lease/3)
	}
	f.keeper.add(flights)
	f.backlog.put(flights)
}
