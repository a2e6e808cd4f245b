package workertest

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

var _ worker.Source = (*Source)(nil)

// A Source is a queue in memory. Its methods may be called concurrently, and
// none but Watch and Wait blocks. They fail only if their context has ended, if an
// argument is out of the bounds that a queue has (the error then matches
// [worker.ErrInvalid]), or if [Source.Fail] says so; nothing has changed then.
type Source struct {
	name string

	mu       sync.Mutex // guards what follows
	offset   time.Duration
	failure  error
	fence    uint64
	minted   int // IDs that were left to the source
	trial    trial
	tasks    map[string]*entry
	states   map[State]*line
	holders  map[string]*entry    // of lock keys
	looks    map[string]time.Time // when to look whether a key is free that tasks are parked for
	watchers map[*watcher]struct{}
	waiters  map[string][]chan duly.Ended // by ID
}

// A watcher is a Watch under way.
type watcher struct {
	wake   chan struct{}
	cancel func(id string, fence uint64)
}

// NewSource returns an empty source of a name, at the time of the machine.
func NewSource(name string) *Source {
	return &Source{
		name:     name,
		tasks:    make(map[string]*entry),
		states:   map[State]*line{Due: {}, Parked: {}, Leased: {}, Dead: {}, Done: {}},
		holders:  make(map[string]*entry),
		looks:    make(map[string]time.Time),
		watchers: make(map[*watcher]struct{}),
		waiters:  make(map[string][]chan duly.Ended),
	}
}

// Name is the source's name.
func (s *Source) Name() string { return s.name }

// Now is the time by the source's clock, in whole µs.
func (s *Source) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

func (s *Source) now() time.Time {
	return time.UnixMicro(time.Now().Add(s.offset).UnixMicro())
}

// Advance moves the clock: what is due within d is due now, and a lease that
// lasts no longer than d has run out. Watchers are hinted. The timers of a
// worker, which extends leases, and of its handlers do not move. It panics if d
// is negative.
func (s *Source) Advance(d time.Duration) {
	if d < 0 {
		panic(fmt.Sprintf("workertest: Advance(%v)", d))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offset += d
	s.hint()
}

// Fail makes every call that can return an error return this one and change
// nothing, as if Redis were away, until Fail(nil).
func (s *Source) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err
}

// Watch calls hint with zero whenever a Pop may bring something sooner than the
// last one said, and once at the start, until ctx ends. When a run is cancelled,
// [Source.CancelRunning] calls cancel, which must not call the source.
func (s *Source) Watch(ctx context.Context, hint func(in time.Duration), cancel func(id string, fence uint64)) {
	w := &watcher{make(chan struct{}, 1), cancel}
	w.wake <- struct{}{} // for what came between the last Pop and now
	s.mu.Lock()
	s.watchers[w] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
	}()
	for {
		select {
		case <-w.wake:
			hint(0)
		case <-ctx.Done():
			return
		}
	}
}

// hint wakes the watchers. It never blocks. The lock is held.
func (s *Source) hint() {
	for w := range s.watchers {
		select {
		case w.wake <- struct{}{}:
		default: // one is waiting
		}
	}
}

// begin locks the source for a verb, unless that is to fail.
func (s *Source) begin(ctx context.Context) (end func(), err error) {
	s.mu.Lock()
	if err := cmp.Or(ctx.Err(), s.failure); err != nil {
		s.mu.Unlock()
		return nil, err
	}
	s.forget()
	return s.mu.Unlock, nil
}

// wrap says what failed.
func (s *Source) wrap(verb string, err error) error {
	return fmt.Errorf("workertest: %s %q: %w", verb, s.name, err)
}
