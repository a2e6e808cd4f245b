package worker

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/dulyhq/duly"
)

// A Worker runs the tasks of its sources. Its methods may be called
// concurrently; each Run is a pool of its own.
type Worker struct {
	handler  duly.Handler
	cfg      Config
	sources  []Source
	counters counters
}

// New returns a worker that runs the tasks of sources with a handler, usually a
// [duly.Mux]. What is wrong with its arguments is reported by Run.
func New(h duly.Handler, cfg Config, sources ...Source) *Worker {
	return &Worker{handler: h, cfg: cfg, sources: sources}
}

// Run runs tasks until ctx ends; it then drains, as the package comment says,
// and returns nil. An error means that the worker could not start, matching
// [ErrInvalid], or that handlers did not return in time; their goroutines are
// left to themselves, and their tasks run again when the leases have run out.
func (w *Worker) Run(ctx context.Context) error {
	cfg := w.cfg.withDefaults()
	if isNil(w.handler) {
		return fmt.Errorf("worker: %w: nil handler", ErrInvalid)
	}
	if err := cfg.validate(w.handler, w.sources); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	recurring, err := cfg.registrars(w.sources)
	if err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	base, cancelHandlers := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancelHandlers(nil)
	p := w.newPool(base, cfg)
	f := w.startFeeds(ctx, cfg, p)
	for i := range recurring {
		f.fetching.Go(func() { recurring[i].run(ctx) })
	}

	<-ctx.Done()
	p.backlog.close()
	if !waitFor(p.done, cfg.DrainTimeout) {
		now := time.Now()
		p.executor.stopped.Store(&now)
		cancelHandlers(duly.ErrStopping)
		waitFor(p.done, cfg.CancelTimeout)
	}
	stuck := p.executor.running.Load()
	f.stop(cfg.CancelTimeout)
	if stuck > 0 {
		w.counters.stuck.Add(stuck)
		cfg.Logger.Error("handlers did not return", zap.Int64("stuck", stuck))
		return fmt.Errorf("worker: %d handlers did not return within %v", stuck, cfg.DrainTimeout+cfg.CancelTimeout)
	}
	return nil
}

// isNil reports whether a handler is nil, or holds a nil pointer or function.
func isNil(h duly.Handler) bool {
	switch v := reflect.ValueOf(h); v.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Func, reflect.Pointer:
		return v.IsNil()
	}
	return false
}

// A pool is the goroutines that run handlers.
type pool struct {
	backlog  *backlog
	slots    *slots
	executor *executor
	done     chan struct{} // closed when all have ended
}

func (w *Worker) newPool(base context.Context, cfg Config) *pool {
	giveBack := func(f *flight, in time.Duration) {
		if in > 0 {
			w.counters.limited.Add(1)
		}
		f.settler.put(f, duly.Settlement{Action: duly.Released, In: in})
	}
	p := &pool{slots: newSlots(cfg.Concurrency, cfg.Strict), done: make(chan struct{})}
	p.backlog = newBacklog(giveBack, p.slots, cfg.KindLimits)
	p.executor = &executor{
		handler: w.handler, base: base, timeout: cfg.Timeout, maxAttempts: cfg.MaxAttempts,
		backoff: cfg.Backoff, unknownDelay: cfg.UnknownDelay, log: cfg.Logger, counters: &w.counters,
	}
	var g errgroup.Group
	for range cfg.Concurrency {
		g.Go(func() error { return p.loop(&g) })
	}
	go func() {
		_ = g.Wait() // the loops return no errors
		close(p.done)
	}()
	return p
}

// loop runs flights until the backlog is closed. A handler that ends the
// goroutine is followed by another loop.
func (p *pool) loop(g *errgroup.Group) error {
	ended := false
	defer func() {
		if !ended {
			g.Go(func() error { return p.loop(g) })
		}
	}()
	for {
		f, ok := p.backlog.take()
		if !ok {
			ended = true
			return nil
		}
		p.run(f)
	}
}

// run runs a flight, and gives up its place among its kind also if the handler
// ends the goroutine.
func (p *pool) run(f *flight) {
	defer p.backlog.leave(f)
	p.executor.execute(f)
}

// feeds are the loops around the sources.
type feeds struct {
	fetching, keeping, settling sync.WaitGroup
	settlers                    []*settler
	cancel                      context.CancelFunc // ends what outlasts the context of Run
}

func (w *Worker) startFeeds(ctx context.Context, cfg Config, p *pool) *feeds {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	all := &feeds{cancel: cancel}
	for _, source := range w.sources {
		h := &health{log: cfg.Logger.With(zap.String("queue", source.Name()))}
		k := newKeeper(source, cfg.Lease, h)
		s := &settler{source: source, keeper: k, slots: p.slots, health: h, counters: &w.counters, wake: make(chan struct{}, 1)}
		f := &fetcher{
			source: source, lease: cfg.Lease, slots: p.slots, share: p.slots.share(cfg.Weights[source.Name()]),
			keeper: k, settler: s, backlog: p.backlog, health: h, hints: newHints(),
		}
		all.settlers = append(all.settlers, s)
		all.fetching.Go(func() { f.run(ctx, lasting) })
		all.keeping.Go(func() { k.run(lasting) })
		all.keeping.Go(func() { source.Watch(lasting, f.hints.add, k.cancel) }) // a drain can be cut short by cancelling
		all.settling.Go(func() { s.run(lasting) })
	}
	return all
}

// stop ends the loops: the fetchers, whose context has ended, then the settlers
// once everything is settled or time is up, then the keepers.
func (f *feeds) stop(timeout time.Duration) {
	timer := time.AfterFunc(timeout, f.cancel)
	defer timer.Stop()
	f.fetching.Wait()
	for _, s := range f.settlers {
		s.close()
	}
	f.settling.Wait()
	f.cancel()
	f.keeping.Wait()
}

// waitFor reports whether done is closed within d.
func waitFor(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
