package lock

import (
	"context"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"
)

// lookEvery is how long a waiter relies on being told before it looks itself,
// give or take a fifth: what a message that was lost costs, and if it said that it
// was the waiter's turn, that goes to the next. It is a third of what keeps the
// process in line.
const lookEvery = aliveTTL / 3

// linger is how long a subscription outlives its last waiter.
const linger = 100 * time.Millisecond

// lines are the waiters of this process, a line for each lock. They are woken by
// what the listener hears; the first of a line also looks at the lock from time
// to time, for all of its line. A message is a hint and nothing more: the look
// that follows decides.
type lines struct {
	listener *listener // nil: nothing can be heard
	pollMin  time.Duration
	pollMax  time.Duration

	mu      sync.Mutex // guards what follows
	byKey   map[string]*line
	byToken map[string]*waiter
	hears   bool // the subscription stands
	waiting int  // waiters that have been refused
}

// A line is the waiters of this process for one lock, in the order of their
// coming.
type line struct {
	waiters []*waiter
	free    time.Time // when the lock may be, as far as is known
	timer   *time.Timer
}

// A waiter is one call that wants a lock.
type waiter struct {
	key, token string
	wake       chan struct{} // a look is due; holds one
	looked     time.Time
	refused    bool
}

func newLines(cfg Config, listener *listener) *lines {
	ls := &lines{
		listener: listener, pollMin: cfg.PollMin, pollMax: cfg.PollMax,
		byKey: make(map[string]*line), byToken: make(map[string]*waiter),
	}
	if listener != nil {
		listener.heard, listener.connected = ls.heard, ls.connected
	}
	return ls
}

// enter puts a waiter at the end of its line. It comes before its first look, so
// that a grant right behind that finds it.
func (ls *lines) enter(key, token string) *waiter {
	w := &waiter{key: key, token: token, wake: make(chan struct{}, 1)}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byKey[key]
	if l == nil {
		l = new(line)
		ls.byKey[key] = l
	}
	l.waiters = append(l.waiters, w)
	ls.byToken[token] = w
	return w
}

// leave takes a waiter out of its line. If it has not got the lock, it may have
// been told that it is free: then the next looks in its place.
func (ls *lines) leave(w *waiter, got bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.byToken, w.token)
	l := ls.byKey[w.key]
	place := slices.Index(l.waiters, w)
	l.waiters = slices.Delete(l.waiters, place, place+1)
	if w.refused {
		if ls.waiting--; ls.waiting == 0 && ls.listener != nil {
			time.AfterFunc(linger, ls.quiet)
		}
	}
	if len(l.waiters) == 0 {
		l.stop()
		delete(ls.byKey, w.key)
		return
	}
	if place == 0 && !got {
		l.waiters[0].rouse()
	}
	ls.arm(l)
}

// quiet ends the subscription, unless somebody waits again.
func (ls *lines) quiet() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.waiting == 0 {
		ls.listener.stop()
		ls.hears = false
	}
}

// refused notes that a waiter has looked in vain: who holds the lock, and for
// how long at most. If that is another of this process, its grant has not
// reached it.
func (ls *lines) refused(w *waiter, held *HeldError) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if !w.refused {
		w.refused = true
		if ls.waiting++; ls.listener != nil {
			ls.listener.start()
		}
	}
	w.looked = time.Now()
	l := ls.byKey[w.key]
	l.free = w.looked.Add(held.RetryAfter)
	if sibling := ls.byToken[held.token]; sibling != nil {
		sibling.rouse()
	}
	ls.arm(l)
}

// heard is what the listener calls for a message: the lock of a key was granted
// to a token, or is free if there is none.
func (ls *lines) heard(key, token string) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	l := ls.byKey[key]
	if l == nil {
		return
	}
	w := ls.byToken[token]
	if token == "" {
		w = l.waiters[0]
	}
	if w != nil {
		w.rouse()
	}
	l.free = time.Now().Add(claimTTL)
	ls.arm(l)
}

// connected is what the listener calls when the subscription of ctx begins or
// ceases to hear. What was said until then is lost, so every line looks.
func (ls *lines) connected(ctx context.Context, hears bool) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ctx.Err() != nil || ls.hears == hears {
		return // it may be the end of one subscription after the start of the next
	}
	ls.hears = hears
	for _, l := range ls.byKey {
		l.waiters[0].rouse()
	}
}

// arm sets the time of the next look of a line.
func (ls *lines) arm(l *line) {
	first := l.waiters[0]
	if !first.refused {
		return // it is looking
	}
	next := l.free.Add(between(time.Millisecond, ls.pollMin))
	limit := first.looked.Add(between(ls.pollMin, ls.pollMax))
	if ls.hears {
		limit = first.looked.Add(between(lookEvery*4/5, lookEvery*6/5))
	}
	if limit.Before(next) {
		next = limit
	}
	l.stop()
	l.timer = time.AfterFunc(time.Until(next), func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		if len(l.waiters) > 0 {
			l.waiters[0].rouse()
		}
	})
}

func (l *line) stop() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

func (w *waiter) rouse() {
	select {
	case w.wake <- struct{}{}:
	default: // it is about to look anyway
	}
}

// wait returns when a look is due, or with the error of ctx.
func (w *waiter) wait(ctx context.Context) error {
	select {
	case <-w.wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// between is a random duration, for processes not to look all at once.
func between(least, most time.Duration) time.Duration {
	return least + mathrand.N(max(most-least, 0)+1) //nolint:gosec // spreads load, secures nothing
}

// sleep waits for d, or returns the error of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
