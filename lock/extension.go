package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// An extension is what the nodes say to the renewal of one lease.
type extension struct {
	tally
	renewal renewal // as it was sent, then what came of it
	fences  map[*node]uint64
	absent  []*node
	lost    bool
}

func (e *extension) add(n *node, r *renewal) {
	switch {
	case r.err == nil:
		e.fences[n] = r.fence
		e.count(true, nil)
	case errors.Is(r.err, ErrExpired):
		e.absent = append(e.absent, n)
		e.count(false, nil)
	case errors.Is(r.err, ErrLost):
		e.lost = true
		e.count(false, nil)
	default:
		e.count(false, r.err)
	}
}

// decided says that the votes that are out change nothing. Unlike a request for
// a lock it is refused by a majority only: else it may still be held.
func (e *extension) decided() bool {
	return e.yes >= e.majority || e.no >= e.majority || max(e.yes, e.no)+e.out < e.majority
}

func (e *extension) verdict() error {
	switch {
	case e.yes >= e.majority:
		return nil
	case e.no < e.majority:
		return fmt.Errorf("%w: %w", ErrNoQuorum, e.err)
	case e.lost:
		return ErrLost
	}
	return ErrExpired
}

// extend extends each lease on all nodes; a majority decides.
func (q *quorum) extend(ctx context.Context, batch []*renewal) {
	extensions := make([]*extension, len(batch))
	limit := batch[0].ttl
	for i, r := range batch {
		limit = min(limit, r.ttl)
		r.sent, r.err = time.Now(), ctx.Err()
		extensions[i] = &extension{tally: q.tally(), renewal: *r, fences: make(map[*node]uint64)}
	}
	if ctx.Err() != nil {
		return
	}
	votes := poll(q.nodes, func(n *node) ([]*renewal, error) {
		ctx, cancel := within(ctx, nodeTimeout(limit))
		defer cancel()
		own := make([]*renewal, len(batch))
		for i, e := range extensions {
			own[i] = &renewal{ask: e.renewal.ask}
		}
		n.extend(ctx, own)
		return own, nil
	})
	q.decide(ctx, votes, extensions)
	for i, e := range extensions {
		q.conclude(ctx, e)
		batch[i].fence, batch[i].err = e.renewal.fence, e.renewal.err
	}
	go q.restore(votes, extensions)
}

// decide counts votes until all extensions are decided, or ctx ends.
func (q *quorum) decide(ctx context.Context, votes <-chan vote[[]*renewal], extensions []*extension) {
	undecided := func(e *extension) bool { return !e.decided() }
	for slices.ContainsFunc(extensions, undecided) {
		select {
		case v := <-votes:
			for i, e := range extensions {
				e.add(v.node, v.value[i])
			}
		case <-ctx.Done():
			for _, e := range extensions {
				e.close(ctx.Err())
			}
		}
	}
}

// conclude notes what came of an extension. Whoever goes on with a lease of which
// he knows only the token learns its fence: nodes that were late in the election
// can have others, so a majority agrees on it anew.
func (q *quorum) conclude(ctx context.Context, e *extension) {
	r := &e.renewal
	switch r.err = e.verdict(); {
	case r.err == nil && r.fence == 0:
		r.fence, _, r.err = q.agree(ctx, r.ask, e.fences)
	case errors.Is(r.err, ErrExpired), errors.Is(r.err, ErrLost):
		q.abandon(r.name, r.token) // a minority has just extended it
	}
}

// restore repairs what was extended where a node says that it does not have it.
func (q *quorum) restore(late <-chan vote[[]*renewal], extensions []*extension) {
	for v := range late {
		for i, e := range extensions {
			e.add(v.node, v.value[i])
		}
	}
	for _, e := range extensions {
		if r := e.renewal; r.lease != nil && r.err == nil && len(e.absent) > 0 {
			go q.repair(e.absent, r.ask, r.fence, validUntil(r.sent, r.ttl))
		}
	}
}
