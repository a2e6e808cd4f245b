package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrNoQuorum means that too few nodes of a quorum have answered, or agreed.
var ErrNoQuorum = errors.New("no majority of the nodes")

// NewQuorum returns a locker that works as long as a majority of independent
// Redis nodes runs: three at least, and an odd number. A lock is held by who holds
// it on a majority (the Redlock algorithm, redis.io, 'Distributed locks'), with
// fences that rise as long as a minority fails. Waiters have no order: those of
// a process take turns, and between processes chance decides.
//
// A node that restarts without its data, sooner than the longest TTL, can break
// the exclusion: let it persist every write (appendfsync always) or stay down for
// that long. The clients stay the caller's to close.
func NewQuorum(nodes []redis.UniversalClient, cfg Config) (*Locker, error) {
	if n := len(nodes); n < 3 || n%2 == 0 {
		return nil, fmt.Errorf("lock: %w: %d nodes: a quorum needs an odd number, 3 at least", ErrInvalid, n)
	}
	cfg.PollOnly = true // its nodes would each tell something else
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	q := &quorum{majority: len(nodes)/2 + 1}
	for i, rdb := range nodes {
		if isNil(rdb) {
			return nil, fmt.Errorf("lock: %w: nil client of node %d", ErrInvalid, i)
		}
		if slices.Contains(nodes[:i], rdb) {
			return nil, fmt.Errorf("lock: %w: node %d is another's client", ErrInvalid, i)
		}
		q.nodes = append(q.nodes, newNode(rdb, cfg))
	}
	return newLocker(q, cfg, nil, false), nil
}

// A quorum is a store on a majority of nodes.
type quorum struct {
	nodes    []*node
	majority int
}

func (q *quorum) key(name string) string { return q.nodes[0].key(name) }

// nodeTimeout is how long a node may take to answer: little, for a lock loses as
// much of its time.
func nodeTimeout(ttl time.Duration) time.Duration { return max(20*time.Millisecond, ttl/20) }

// A vote is the answer of one node.
type vote[T any] struct {
	*node
	value T
	err   error
}

// poll asks nodes side by side. Its answers come in the order in which they are
// given, and all come in the end.
func poll[T any](nodes []*node, ask func(*node) (T, error)) <-chan vote[T] {
	votes := make(chan vote[T], len(nodes))
	for _, n := range nodes {
		go func() {
			value, err := ask(n)
			votes <- vote[T]{n, value, err}
		}()
	}
	return votes
}

// take asks all nodes for a lock. As soon as a majority has granted it they are
// made to agree on its fence: the highest of theirs, so that it is higher than
// that of any earlier majority, with which this one has a node in common.
func (q *quorum) take(ctx context.Context, a ask) (grant, error) {
	a.stand = false
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout(a.ttl))
	defer cancel()
	g := grant{sent: time.Now()}
	yes, err := q.elect(ctx, a)
	if err == nil {
		for _, v := range yes {
			g.fence = max(g.fence, v.value.fence)
		}
		err = q.agree(ctx, a, yes, g.fence)
	}
	if err != nil {
		q.abandon(a.name, a.token)
		return grant{}, err
	}
	if len(yes) < len(q.nodes) {
		missing := slices.DeleteFunc(slices.Clone(q.nodes), func(n *node) bool {
			return slices.ContainsFunc(yes, func(v vote[grant]) bool { return v.node == n })
		})
		until := validUntil(g.sent, a.ttl)
		g.repair = func(done <-chan struct{}) {
			a.gone = done
			q.repair(missing, a, g.fence, until)
		}
	}
	return g, nil
}

// elect returns the votes for a token once they are a majority, or why there is
// none.
func (q *quorum) elect(ctx context.Context, a ask) (yes []vote[grant], err error) {
	// A vote goes on though the election is decided: who is asked must answer
	// before a release can follow.
	asking := context.WithoutCancel(ctx)
	votes := poll(q.nodes, func(n *node) (grant, error) {
		ctx, cancel := context.WithTimeout(asking, nodeTimeout(a.ttl))
		defer cancel()
		return n.ask(ctx, a)
	})
	var held *HeldError
	for asked := len(q.nodes); len(yes) < q.majority; asked-- {
		if asked+len(yes) < q.majority {
			if held != nil {
				return nil, held
			}
			return nil, fmt.Errorf("%w: %w", ErrNoQuorum, err)
		}
		select {
		case v := <-votes:
			var refused *HeldError
			switch {
			case v.err == nil:
				yes = append(yes, v)
			case errors.As(v.err, &refused):
				if held == nil || refused.RetryAfter < held.RetryAfter {
					held = refused
				}
			default:
				err = errors.Join(err, v.err)
			}
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrNoQuorum, errors.Join(err, ctx.Err()))
		}
	}
	return yes, nil
}

// agree makes a majority keep a fence.
func (q *quorum) agree(ctx context.Context, a ask, yes []vote[grant], fence uint64) error {
	agreed := 0
	var lower []*node
	for _, v := range yes {
		if v.value.fence == fence {
			agreed++
		} else {
			lower = append(lower, v.node)
		}
	}
	votes := poll(lower, func(n *node) (struct{}, error) { return struct{}{}, n.raise(ctx, a, fence) })
	var failed error
	for range lower {
		if v := <-votes; v.err == nil {
			agreed++
		} else {
			failed = errors.Join(failed, v.err)
		}
	}
	if agreed < q.majority {
		return fmt.Errorf("%w: on the fence: %w", ErrNoQuorum, failed)
	}
	return nil
}

// repair takes the lock on nodes that do not have it, for as long as it is valid:
// one on a bare majority would be lost with one more node. What comes too late
// is released, for nothing may be created again after the lease.
func (q *quorum) repair(missing []*node, a ask, fence uint64, until time.Time) {
	for pause := nodeTimeout(a.ttl); len(missing) > 0; pause = min(2*pause, a.ttl/3) {
		left := time.Until(until) - pause
		if left < MinTTL {
			return
		}
		select {
		case <-time.After(pause):
		case <-a.gone:
			return
		}
		a.ttl = left
		votes := poll(missing, func(n *node) (struct{}, error) {
			ctx, cancel := context.WithTimeout(context.Background(), nodeTimeout(left))
			defer cancel()
			if _, err := n.ask(ctx, a); err != nil {
				return struct{}{}, err
			}
			return struct{}{}, n.raise(ctx, a, fence)
		})
		var still []*node
		for range missing {
			if v := <-votes; v.err != nil {
				still = append(still, v.node)
			}
		}
		missing = still
	}
}

// extend extends each lease on all nodes; a majority decides.
func (q *quorum) extend(ctx context.Context, batch []*renewal) {
	limit := batch[0].ttl
	for _, r := range batch {
		limit = min(limit, r.ttl)
		r.sent = time.Now()
	}
	ctx, cancel := context.WithTimeout(ctx, nodeTimeout(limit))
	defer cancel()
	votes := poll(q.nodes, func(n *node) ([]*renewal, error) {
		own := make([]*renewal, len(batch))
		for i, r := range batch {
			copied := *r
			own[i] = &copied
		}
		n.extend(ctx, own)
		return own, nil
	})
	tallies := make([]tally, len(batch))
	for range q.nodes {
		v := <-votes
		for i := range batch {
			tallies[i].add(v.node, v.value[i])
		}
	}
	for i, r := range batch {
		r.fence, r.err = tallies[i].verdict(q.majority)
		if r.err == nil && len(tallies[i].missing) > 0 && r.gone != nil {
			go q.repair(tallies[i].missing, r.ask, r.fence, validUntil(r.sent, r.ttl))
		}
	}
}

// A tally counts what nodes answer to an extension.
type tally struct {
	yes, expired, lost int
	fence              uint64
	missing            []*node
	failed             error
}

func (t *tally) add(n *node, r *renewal) {
	switch {
	case r.err == nil:
		t.yes++
		t.fence = max(t.fence, r.fence)
	case errors.Is(r.err, ErrExpired):
		t.expired++
		t.missing = append(t.missing, n)
	case errors.Is(r.err, ErrLost):
		t.lost++
	default:
		t.failed = errors.Join(t.failed, r.err)
	}
}

func (t *tally) verdict(majority int) (fence uint64, err error) {
	switch {
	case t.yes >= majority:
		return t.fence, nil
	case t.expired+t.lost < majority:
		return 0, fmt.Errorf("%w: %w", ErrNoQuorum, t.failed)
	case t.lost > 0:
		return 0, ErrLost
	}
	return 0, ErrExpired
}

// release releases on all nodes; a majority decides, and the rest go on in the
// background.
func (q *quorum) release(ctx context.Context, name, token string) (string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	counts := make(map[string]int)
	votes := poll(q.nodes, func(n *node) (string, error) { return n.release(ctx, name, token) })
	var failed error
	for left := len(q.nodes) - 1; ; left-- {
		v := <-votes
		if v.err != nil {
			failed = errors.Join(failed, v.err)
		} else {
			counts[v.value]++
		}
		if counts["ok"] >= q.majority || left == 0 {
			go func() {
				defer cancel()
				for range left {
					<-votes
				}
			}()
			break
		}
	}
	switch answers := counts["ok"] + counts["absent"] + counts["foreign"]; {
	case counts["ok"] >= q.majority:
		return "ok", nil
	case answers < q.majority:
		return "", fmt.Errorf("%w: %w: %w", ErrUnknownOutcome, ErrNoQuorum, failed)
	case counts["foreign"] > 0:
		return "foreign", nil
	}
	return "absent", nil
}

func (q *quorum) abandon(name, token string) {
	for _, n := range q.nodes {
		n.abandon(name, token)
	}
}

// force frees a lock on all nodes. A majority must have answered.
func (q *quorum) force(ctx context.Context, name string) (bool, error) {
	votes := poll(q.nodes, func(n *node) (bool, error) { return n.force(ctx, name) })
	was, answers := 0, 0
	var failed error
	for range q.nodes {
		switch v := <-votes; {
		case v.err != nil:
			failed = errors.Join(failed, v.err)
		case v.value:
			was++
			fallthrough
		default:
			answers++
		}
	}
	if answers < q.majority {
		return false, fmt.Errorf("%w: %w", ErrNoQuorum, failed)
	}
	return was >= q.majority, nil
}

// inspect shows a lock as a majority has it; without one it is free.
func (q *quorum) inspect(ctx context.Context, name string) (Info, error) {
	votes := poll(q.nodes, func(n *node) (Info, error) { return n.inspect(ctx, name) })
	seen := make(map[string][]Info)
	answers := 0
	var failed error
	for range q.nodes {
		v := <-votes
		if v.err != nil {
			failed = errors.Join(failed, v.err)
			continue
		}
		answers++
		seen[v.value.Token] = append(seen[v.value.Token], v.value)
	}
	if answers < q.majority {
		return Info{}, fmt.Errorf("%w: %w", ErrNoQuorum, failed)
	}
	for token, infos := range seen {
		if token != "" && len(infos) >= q.majority {
			return slices.MaxFunc(infos, func(a, b Info) int { return int(a.TTL - b.TTL) }), nil
		}
	}
	return Info{Name: name}, nil
}
