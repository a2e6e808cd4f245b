package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/dulyhq/duly"
)

// hold holds a sale from the first buyer to the last parcel, and reports. It
// leaves nothing behind: no process, no file, no key, no table. A report may come
// with an error, if some buyers got no answer.
func hold(ctx context.Context, cfg *config, out *console) (r *report, err error) {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	ground, err := breakGround(ctx, cfg)
	defer func() { err = errors.Join(err, ground.clear()) }()
	if err != nil {
		return nil, err
	}
	crew, err := hire(ctx, cfg.Workers, assignment{
		RedisURL: ground.url, Queue: ground.name, Place: ground.place, Lease: cfg.Lease, Fail: cfg.Fail,
	}, ground.dir, out, abort)
	defer crew.dismiss()
	if err != nil {
		return nil, err
	}
	front, err := openShop(ctx, cfg, ground, out, abort)
	if err != nil {
		return nil, err
	}
	defer front.close()
	return front.trade(ctx, cfg, ground, crew)
}

// A shopfront is a shop with its doors open: the HTTP server and what runs behind
// it.
type shopfront struct {
	url    string
	board  *board
	server *http.Server
	out    *console

	stop    context.CancelFunc
	running sync.WaitGroup
}

// openShop opens the doors. abort is told if they fall shut.
func openShop(ctx context.Context, cfg *config, g *ground, out *console, abort func(error)) (*shopfront, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("open the shop: %w", err)
	}
	owed := make(chan struct{}, 1)
	s := &shop{store: g.store, queue: g.queue, deadline: cfg.Deadline, board: newBoard(g.store, g.queue), owed: owed}
	for _, item := range cfg.items() {
		s.items = append(s.items, item.Name)
	}
	ctx, stop := context.WithCancel(ctx)
	f := &shopfront{url: "http://" + listener.Addr().String(), board: s.board, out: out, stop: stop}
	relay := &outbox{store: g.store, queue: g.queue, notice: cfg.Deadline / 2, owed: owed, warn: func(err error) {
		if err == nil {
			err = errors.New("outbox: well again")
		}
		out.warn(err)
	}}
	f.server = (&counter{shop: s, board: s.board, warn: out.warn}).server()

	s.board.refresh(ctx) // the hint is there before the first buyer
	f.running.Go(func() { s.board.run(ctx) })
	f.running.Go(func() { relay.run(ctx) })
	f.running.Go(func() {
		if err := f.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			abort(fmt.Errorf("the shop: %w", err))
		}
	})
	return f, nil
}

func (f *shopfront) close() {
	shut(f.server)
	f.stop()
	f.running.Wait()
}

// trade lets the crowd in, kills workers in the middle of it, waits until every
// order has come to its end, and counts.
func (f *shopfront) trade(ctx context.Context, cfg *config, g *ground, c *crew) (*report, error) {
	crowd := newCrowd(f.url, cfg)
	_, _ = fmt.Fprintf(f.out, "live page: %s/\n", f.url)
	opened := time.Now()
	ctx, over := context.WithCancel(ctx)
	f.running.Go(func() {
		f.out.run(ctx, func() string { return statusLine(time.Since(opened), f.board.snapshot(), crowd.turnedAway()) })
	})
	killing := make(chan struct{})
	go func() {
		defer close(killing)
		sleep(ctx, cfg.Deadline/2)
		if err := c.kill(ctx, cfg.Kill); err != nil {
			f.out.warn(err)
		}
	}()
	defer func() { <-killing }()
	defer over()
	moving, stop := whileMoving(ctx, f.board, cfg.patience())
	defer stop()
	unserved := crowd.run(moving)
	drain(moving, g)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if moving.Err() != nil {
		f.out.warn(context.Cause(moving))
	}
	took := time.Since(opened)
	over()
	<-killing
	c.dismiss()
	r, err := count(ctx, g, c, crowd, took)
	return r, errors.Join(err, unserved)
}

// errStalled: nothing happens any more though there is something to do.
var errStalled = errors.New("nothing moves any more: this is where the sale ends")

// patience is how long it takes at most until something happens: until a buyer
// comes for the first time or again, until an unpaid order is cancelled, until a
// crashed worker's task runs again, and then some.
func (c *config) patience() time.Duration {
	return c.Rush + 7*c.Deadline + 2*c.Lease + 15*time.Second
}

// whileMoving returns a context that ends with errStalled if for so long no order
// has changed its state and no task has been settled. A sale that has lost an
// order would wait for it for ever; so it ends, and the report shows the loss.
func whileMoving(ctx context.Context, b *board, patience time.Duration) (context.Context, context.CancelFunc) {
	moving, stop := context.WithCancelCause(ctx)
	go func() {
		seen, since := b.snapshot(), time.Now()
		for !sleep(moving, 50*time.Millisecond) {
			now := b.snapshot()
			if !slices.Equal(now.Shelves, seen.Shelves) || !maps.Equal(settled(now), settled(seen)) {
				seen, since = now, time.Now()
			}
			if time.Since(since) > patience {
				stop(errStalled)
			}
		}
	}()
	return moving, func() { stop(nil) }
}

// settled counts what has become of tasks but for the stock audit's, which recurs
// whatever happens.
func settled(s *snapshot) map[string]int64 {
	counters := maps.Clone(s.Tasks.Counters)
	delete(counters, string(duly.Repeated))
	return counters
}

// drain waits until all orders have come to their end and the queue is empty.
func drain(ctx context.Context, g *ground) {
	for !finish(ctx, g) && !sleep(ctx, 50*time.Millisecond) {
	}
}

// finish calls the stock audit off if all orders have come to their end, and
// reports whether nothing is left to do.
func finish(ctx context.Context, g *ground) bool {
	shelves, err := g.store.shelves(ctx)
	if err != nil {
		return false
	}
	for _, s := range shelves {
		if s.Reserved+s.Paid+s.Owing > 0 {
			return false
		}
	}
	if _, err := g.queue.Cancel(ctx, stockAuditID); err != nil {
		return false
	}
	tasks, err := g.queue.Stats(ctx)
	return err == nil && tasks.Due+tasks.Leased == 0
}

// count makes the report, after everything has ended.
func count(ctx context.Context, g *ground, c *crew, all *crowd, took time.Duration) (*report, error) {
	ctx = context.WithoutCancel(ctx) // the sale is over, and is to be counted
	items, err := audit(ctx, g.store, all.told())
	if err != nil {
		return nil, err
	}
	runs, err := readRuns(c.logs()...)
	if err != nil {
		return nil, err
	}
	found, err := g.store.findings(ctx)
	if err != nil {
		return nil, err
	}
	tasks, err := g.queue.Stats(ctx)
	if err != nil {
		return nil, err
	}
	var late, inTime, tooLate int64
	for _, f := range items {
		for _, s := range all.stalls {
			if s.item == f.Item {
				f.Buyers, f.SoldOut = len(s.buyers), int(s.soldOut.Load())
				late, inTime, tooLate = late+s.late.Load(), inTime+s.inTime.Load(), tooLate+s.tooLate.Load()
			}
		}
	}
	r := newReport(items, review(runs, c.killed()), found, c.killed(), took)
	r.Expired = int(tasks.Counters["drop"]) // nothing else is dropped
	r.late, r.inTime, r.tooLate = late, inTime, tooLate
	return r, nil
}
