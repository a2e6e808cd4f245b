package worker_test

import (
	"context"
	"slices"
	"time"

	"github.com/dulyhq/duly"
)

// told returns the calls of a verb so far.
func (f *fake) told(verb string) []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.calls), func(c call) bool { return c.verb != verb })
}

// ends returns what was settled so far, of one task if an ID is given.
func (f *fake) ends(ids ...string) []duly.Settlement {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.settled), func(s duly.Settlement) bool {
		return len(ids) > 0 && s.Delivery.ID != ids[0]
	})
}

// leased counts the tasks that are out.
func (f *fake) leased() int { return len(f.out()) }

// out returns the IDs of the tasks that are out.
func (f *fake) out() (ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, s := range f.tasks {
		if time.Now().Before(s.until) {
			ids = append(ids, id)
		}
	}
	return ids
}

// left counts the tasks that are there, in whatever state.
func (f *fake) left() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.tasks)
}

// on is a hook of the calls of one verb.
func on(verb string, fail func(ctx context.Context) error) hook {
	return func(ctx context.Context, called string) error {
		if called == verb {
			return fail(ctx)
		}
		return nil
	}
}

// away is a call that fails.
func away(context.Context) error { return errAway }

// hang is a call that no context ends.
func hang(until <-chan struct{}) func(context.Context) error {
	return func(context.Context) error {
		<-until
		return errAway
	}
}
