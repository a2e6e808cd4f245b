package queue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
)

// Times of those that wait for a task to end.
const (
	lookEvery  = 5 * time.Second        // give or take a fifth: what a message that was lost costs
	lookDeaf   = time.Second            // likewise, while there is no subscription
	lookMost   = 200                    // tasks a look, since each may have a result
	lookWithin = time.Second            // bounds one look: it may be on a connection that is dead
	lookAgain  = 4                      // looks that got no answer, before that is an error
	linger     = 100 * time.Millisecond // how long a subscription outlives its last waiter
	firstLook  = "first"                // what a waiter has seen that has not looked
)

// waits are the calls of Wait through one Queue value. They share one goroutine
// that looks and, once a look has told somebody to wait, one that listens. What
// is heard is a hint: the look that follows decides.
type waits struct {
	look   func(ctx context.Context, batch []*waiter) error
	listen func(ctx context.Context, heard func(ids string), connected func(bool))

	mu     sync.Mutex // guards what follows
	byID   map[string][]*waiter
	next   []*waiter // to be looked for
	count  int
	hears  bool
	listed bool               // there is a listener
	stop   context.CancelFunc // ends both goroutines; nil: there are none
	wake   chan struct{}      // theirs: somebody is to be looked for
}

// A waiter is one call of Wait. Whoever looks for it owns what follows over.
type waiter struct {
	id   string
	over chan struct{} // closed when ended or err is known

	seen   string // what the last look answered
	known  bool
	ended  duly.Ended
	err    error
	silent int  // looks in a row that got no answer
	queued bool // in next; guarded by the mu of waits
	gone   bool // likewise
	looked bool // at its task, and waits; likewise
}

// enter begins a wait with a look.
func (ws *waits) enter(id string) *waiter {
	w := &waiter{id: id, over: make(chan struct{}), seen: firstLook}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.byID[id] = append(ws.byID[id], w)
	ws.count++
	if ws.stop == nil {
		var ctx context.Context
		ctx, ws.stop = context.WithCancel(context.Background())
		ws.wake = make(chan struct{}, 1)
		go ws.run(ctx, ws.wake)
	}
	ws.ask(w)
	return w
}

// ask has waiters looked for. mu is held.
func (ws *waits) ask(some ...*waiter) {
	for _, w := range some {
		if !w.queued && !w.gone {
			w.queued = true
			ws.next = append(ws.next, w)
		}
	}
	select {
	case ws.wake <- struct{}{}:
	default: // the signal is there
	}
}

// leave ends a wait.
func (ws *waits) leave(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.drop(w)
}

// drop forgets a waiter. mu is held.
func (ws *waits) drop(w *waiter) {
	if w.gone {
		return
	}
	w.gone = true
	left := ws.byID[w.id]
	i := slices.Index(left, w)
	left = slices.Delete(left, i, i+1)
	if len(left) == 0 {
		delete(ws.byID, w.id)
	} else {
		ws.byID[w.id] = left
	}
	if ws.count--; ws.count == 0 {
		time.AfterFunc(linger, ws.quiet)
	}
}

// quiet ends the goroutines, unless somebody waits again.
func (ws *waits) quiet() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.count == 0 && ws.stop != nil {
		ws.stop()
		ws.stop, ws.hears, ws.listed, ws.next = nil, false, false, nil
	}
}

// run looks until ctx ends: for those who are to be looked for, and from time to
// time for all, however busy it is.
func (ws *waits) run(ctx context.Context, wake <-chan struct{}) {
	last := time.Now()
	for ctx.Err() == nil {
		left := ws.every() - time.Since(last)
		if left <= 0 {
			last = time.Now()
			ws.askAll(ctx)
		}
		if batch := ws.take(ctx); len(batch) > 0 {
			call, cancel := context.WithTimeout(ctx, lookWithin)
			err := ws.look(call, batch)
			cancel()
			ws.answer(ctx, batch, err)
			continue
		}
		timer := time.NewTimer(max(left, 0))
		select {
		case <-wake:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// every is how often all are looked for.
func (ws *waits) every() time.Duration {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	every := lookDeaf
	if ws.hears {
		every = lookEvery
	}
	return every*4/5 + rand.N(every*2/5) //nolint:gosec // spreads load, secures nothing
}

// take is a batch of those to be looked for.
func (ws *waits) take(ctx context.Context) (batch []*waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for ctx.Err() == nil && len(ws.next) > 0 && len(batch) < lookMost {
		w := ws.next[0]
		ws.next[0], ws.next = nil, ws.next[1:]
		if w.queued = false; !w.gone {
			batch = append(batch, w)
		}
	}
	return batch
}

// answer ends the waits for what has ended, and those whose first look has failed. A
// look that got no answer is repeated, on another connection.
func (ws *waits) answer(ctx context.Context, batch []*waiter, err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	silence := errors.Is(err, context.DeadlineExceeded)
	for _, w := range batch {
		if !silence {
			w.silent = 0
		} else if w.silent++; w.silent <= lookAgain && ctx.Err() == nil {
			ws.ask(w)
			continue
		}
		if err != nil && (w.seen == firstLook || errors.Is(err, redis.ErrClosed)) {
			w.err, w.known = err, true
		}
		w.looked = err == nil || w.looked
		if w.known && !w.gone {
			close(w.over)
			ws.drop(w)
		}
	}
	if ctx.Err() == nil && ws.count > 0 && !ws.listed {
		ws.listed = true
		go ws.listen(ctx, func(ids string) { ws.heard(ctx, ids) }, func(hears bool) { ws.connected(ctx, hears) })
	}
}

// heard is what the listener calls for a message: tasks that have ended.
func (ws *waits) heard(ctx context.Context, ids string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	for id := range strings.SplitSeq(ids, "\n") {
		if some := ws.byID[id]; len(some) > 0 {
			ws.ask(some...)
		}
	}
}

// connected is what the listener calls when it begins or ceases to hear. What was
// said until then is lost, so everybody is looked for.
func (ws *waits) connected(ctx context.Context, hears bool) {
	ws.mu.Lock()
	if ctx.Err() != nil {
		ws.mu.Unlock()
		return
	}
	ws.hears = hears
	ws.mu.Unlock()
	ws.askAll(ctx)
}

func (ws *waits) askAll(ctx context.Context) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ctx.Err() != nil {
		return // others may be waiting by now, and these goroutines be no longer theirs
	}
	for _, some := range ws.byID {
		ws.ask(some...)
	}
}
