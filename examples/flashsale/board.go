package main

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dulyhq/duly/queue"
)

// A snapshot is the sale at a moment. It is shared and must not be changed.
type snapshot struct {
	At      time.Time
	Shelves []shelf
	Tasks   queue.Stats
	Found   findings
	Err     error // why it is not newer
}

// A board shows the latest snapshot to all who want to know and need not decide.
type board struct {
	store *store
	queue *queue.Queue
	last  atomic.Pointer[snapshot]
}

func newBoard(s *store, q *queue.Queue) *board {
	b := &board{store: s, queue: q}
	b.last.Store(&snapshot{})
	return b
}

// run takes a snapshot every 100 ms, until ctx ends. If the database or Redis
// does not answer, the last one stays and says so.
func (b *board) run(ctx context.Context) {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		b.refresh(ctx)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

func (b *board) refresh(ctx context.Context) {
	next := *b.last.Load()
	next.At = time.Now()
	var shelves []shelf
	if shelves, next.Err = b.store.shelves(ctx); next.Err == nil {
		next.Shelves = shelves
		next.Found, next.Err = b.store.findings(ctx)
	}
	tasks, err := b.queue.Stats(ctx)
	if err == nil {
		next.Tasks = tasks
	} else if next.Err == nil {
		next.Err = err
	}
	b.last.Store(&next)
}

func (b *board) snapshot() *snapshot { return b.last.Load() }

// empty notes that the database has just said so: the next buyers need not ask
// it as well. A piece that is out counts as reserved until the next snapshot
// knows better, for nobody may be told too early that there is no hope.
func (b *board) empty(item string) {
	old := b.last.Load()
	next := *old
	next.Shelves = slices.Clone(old.Shelves)
	for i := range next.Shelves {
		if s := &next.Shelves[i]; s.Item == item {
			s.Stock, s.Reserved = 0, max(s.Reserved, 1)
		}
	}
	b.last.CompareAndSwap(old, &next) // or a newer one is there
}

// shelf finds an item's.
func (b *board) shelf(item string) (shelf, bool) {
	for _, s := range b.last.Load().Shelves {
		if s.Item == item {
			return s, true
		}
	}
	return shelf{}, false
}
