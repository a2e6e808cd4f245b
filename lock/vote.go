package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// A vote is the answer of one node.
type vote[T any] struct {
	*node
	value T
	err   error
}

// poll asks nodes side by side. Their answers come in the order in which they are
// given; all come in the end, and then the channel is closed.
func poll[T any](nodes []*node, ask func(*node) (T, error)) <-chan vote[T] {
	votes := make(chan vote[T], len(nodes))
	var all sync.WaitGroup
	for _, n := range nodes {
		all.Go(func() {
			value, err := ask(n)
			votes <- vote[T]{n, value, err}
		})
	}
	go func() {
		all.Wait()
		close(votes)
	}()
	return votes
}

// A tally counts the votes of a quorum.
type tally struct {
	majority        int
	out             int // those that have not come
	yes, no, failed int
	err             error // why they failed
}

func (t *tally) count(yes bool, err error) {
	t.out--
	switch {
	case err != nil:
		t.failed++
		t.err = errors.Join(t.err, err)
	case yes:
		t.yes++
	default:
		t.no++
	}
}

// close counts those that are out as failed.
func (t *tally) close(err error) {
	t.failed += t.out
	t.out = 0
	t.err = errors.Join(t.err, err)
}

// decided says that the votes that are out change nothing: a majority has said
// yes, or cannot any more and a majority has answered, or a majority has failed.
func (t *tally) decided() bool {
	return t.yes >= t.majority || t.failed >= t.majority ||
		t.yes+t.out < t.majority && t.yes+t.no >= t.majority
}

// answered is ErrNoQuorum unless a majority has answered.
func (t *tally) answered() error {
	if t.yes+t.no >= t.majority {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNoQuorum, t.err)
}

// gather counts votes until they decide, or ctx ends: a node that hangs is waited
// for only if it can turn the outcome.
func gather[T any](ctx context.Context, votes <-chan vote[T], t *tally, yes func(vote[T]) bool) {
	for !t.decided() {
		select {
		case v := <-votes:
			t.count(yes(v), v.err)
		case <-ctx.Done():
			t.close(ctx.Err())
		}
	}
}
