package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrNoQuorum means that too few nodes of a quorum have answered, or agreed. What a
// minority has granted is given back in the background. The errors of the nodes are
// joined to it: with ErrUnknownOutcome among them, one that did not answer may have
// done, or may yet do, what it was asked.
var ErrNoQuorum = errors.New("no majority of the nodes")

// NewQuorum returns a locker that works as long as a majority of independent
// Redis nodes runs: three at least, and an odd number. A lock is held by who holds
// it on a majority (the Redlock algorithm, redis.io, 'Distributed locks'), with
// fences that rise as long as a minority fails, though the nodes' clocks be a day
// apart. Waiters have no order: those of a process take turns, and between processes
// chance decides. A lock that was just released can be refused for a moment, until
// nodes that were late have heard of it.
//
// A node has a twentieth of the TTL to answer, 20 ms at least and a second at most,
// and one that does not is waited for only where its vote can turn the outcome. Nodes that did not get a
// lock get it when they are back, while the lease lasts. Without a majority errors
// match [ErrNoQuorum], and a lease is held until it expires. Where the nodes are not
// of one mind, a lease that is over is told as ErrLost or as ErrExpired.
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
func nodeTimeout(ttl time.Duration) time.Duration {
	return min(max(20*time.Millisecond, ttl/20), time.Second)
}

// within bounds what one node is asked. It is asked though ctx ends, or though
// the others have decided: its answer must come before a release can follow.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

func (q *quorum) tally() tally { return tally{majority: q.majority, out: len(q.nodes)} }

// take asks all nodes for a lock. When a majority has granted it, a majority is
// made to agree on its fence.
func (q *quorum) take(ctx context.Context, a ask) (grant, error) {
	if err := ctx.Err(); err != nil {
		return grant{}, err
	}
	a.stand = false
	g := grant{sent: time.Now()}
	fences, err := q.elect(ctx, a)
	if err != nil {
		return grant{}, err
	}
	fence, missing, err := q.agree(ctx, a, fences)
	if err != nil {
		q.abandon(a.name, a.token)
		return grant{}, err
	}
	g.fence = fence
	until := validUntil(g.sent, a.ttl)
	g.repair = func(l *Lease) {
		a.lease = l
		q.repair(missing(), a, fence, until)
	}
	return g, nil
}

// A ballot is what a node says to a request for a lock.
type ballot struct {
	fence uint64
	held  *HeldError // nil: granted
}

// elect returns the fences of the nodes that granted the lock, once they are a
// majority. If they are not to be, it is given back where it may be had.
func (q *quorum) elect(ctx context.Context, a ask) (map[*node]uint64, error) {
	arrive := make(map[*node]func(), len(q.nodes))
	for _, n := range q.nodes {
		arrive[n], _ = n.depart(a) // now: a release may come before the goroutine runs
	}
	votes := poll(q.nodes, func(n *node) (ballot, error) {
		ctx, cancel := within(ctx, nodeTimeout(a.ttl))
		defer cancel()
		defer arrive[n]()
		g, err := n.insist(ctx, a)
		var held *HeldError
		if errors.As(err, &held) {
			return ballot{held: held}, nil
		}
		return ballot{fence: g.fence}, err
	})
	t, fences, held := q.tally(), make(map[*node]uint64), make(map[*node]*HeldError)
	gather(ctx, votes, &t, func(v vote[ballot]) bool {
		switch {
		case v.err != nil:
		case v.value.held != nil:
			held[v.node] = v.value.held
		default:
			fences[v.node] = v.value.fence
		}
		return v.value.held == nil
	})
	if t.yes >= q.majority {
		return fences, nil
	}
	for _, n := range q.nodes {
		if held[n] == nil {
			n.abandon(a.name, a.token)
		}
	}
	if err := t.answered(); err != nil {
		return nil, err
	}
	return nil, slices.MinFunc(slices.Collect(maps.Values(held)), func(a, b *HeldError) int {
		return cmp.Compare(a.RetryAfter, b.RetryAfter)
	})
}

// insist asks again while it is not known whether the token has the lock: after a
// restart the first connections are dead ones.
func (n *node) insist(ctx context.Context, a ask) (grant, error) {
	for pause := n.cfg.PollMin; ; pause *= 2 {
		g, err := n.ask(ctx, a)
		if !errors.Is(err, ErrUnknownOutcome) || sleep(ctx, pause) != nil {
			return g, err
		}
	}
}

// agree makes a majority keep the highest fence of those that granted the lock.
// It is higher than that of any earlier majority, with which these have a node in
// common, and any later one finds it. missing returns the nodes without the lock,
// when all have answered.
func (q *quorum) agree(ctx context.Context, a ask, fences map[*node]uint64) (highest uint64, missing func() []*node, err error) {
	fence := uint64(0) // no result: nodes may yet be told when it has returned
	for _, f := range fences {
		fence = max(fence, f)
	}
	t := q.tally()
	var others, without []*node
	for _, n := range q.nodes {
		if fences[n] == fence {
			t.count(true, nil)
		} else {
			others = append(others, n)
		}
	}
	votes := poll(others, func(n *node) (struct{}, error) {
		ctx, cancel := within(ctx, nodeTimeout(a.ttl))
		defer cancel()
		select {
		case <-n.landed(a.token): // it may be granted yet
		case <-ctx.Done():
			return struct{}{}, fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
		}
		return struct{}{}, n.raise(ctx, a, fence)
	})
	note := func(v vote[struct{}]) bool {
		if v.err != nil {
			without = append(without, v.node)
		}
		return v.err == nil
	}
	gather(ctx, votes, &t, note)
	if err := t.answered(); err != nil {
		return 0, nil, fmt.Errorf("on the fence: %w", err)
	}
	return fence, func() []*node {
		for v := range votes {
			note(v)
		}
		return without
	}, nil
}

// repair takes the lock on nodes that do not have it, for as long as it is valid:
// one on a bare majority would be lost with one more node. When the lease is over
// it is released there, for what was asked in vain may yet be heard; unless it goes
// on in another process.
func (q *quorum) repair(missing []*node, a ask, fence uint64, until time.Time) {
	if len(missing) == 0 {
		return
	}
	asked := missing
	for pause := nodeTimeout(a.ttl); len(missing) > 0; pause = min(2*pause, a.ttl/3) {
		if a.lease.endsIn(pause) {
			break
		}
		if a.ttl = time.Until(until); a.ttl < MinTTL {
			break
		}
		missing = q.mend(missing, a, fence)
	}
	<-a.lease.done
	if errors.Is(a.lease.Err(), ErrHandedOver) {
		return
	}
	for _, n := range asked {
		n.abandon(a.name, a.token)
	}
}

// mend takes the lock on nodes, and returns those where it could not.
func (q *quorum) mend(missing []*node, a ask, fence uint64) (still []*node) {
	for v := range poll(missing, func(n *node) (struct{}, error) {
		ctx, cancel := within(context.Background(), nodeTimeout(a.ttl))
		defer cancel()
		if _, err := n.ask(ctx, a); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, n.raise(ctx, a, fence)
	}) {
		if v.err != nil {
			still = append(still, v.node)
		}
	}
	return still
}

// release releases on all nodes; a majority decides, and the rest go on in the
// background.
func (q *quorum) release(ctx context.Context, name, token string) (string, error) {
	votes := poll(q.nodes, func(n *node) (string, error) {
		ctx, cancel := within(ctx, cleanupTimeout)
		defer cancel()
		return n.release(ctx, name, token)
	})
	t, foreign := q.tally(), false
	gather(ctx, votes, &t, func(v vote[string]) bool {
		foreign = foreign || v.value == "foreign"
		return v.value == "ok"
	})
	err := t.answered()
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
	case t.yes >= q.majority:
		return "ok", nil
	case foreign:
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
	votes := poll(q.nodes, func(n *node) (bool, error) {
		ctx, cancel := within(ctx, cleanupTimeout)
		defer cancel()
		return n.force(ctx, name)
	})
	t := q.tally()
	gather(ctx, votes, &t, func(v vote[bool]) bool { return v.value })
	return t.yes >= q.majority, t.answered()
}

// inspect shows a lock as a majority has it; without one it is free.
func (q *quorum) inspect(ctx context.Context, name string) (Info, error) {
	votes := poll(q.nodes, func(n *node) (Info, error) {
		ctx, cancel := within(ctx, cleanupTimeout)
		defer cancel()
		return n.inspect(ctx, name)
	})
	var most []Info
	t, seen := q.tally(), make(map[string][]Info)
	gather(ctx, votes, &t, func(v vote[Info]) bool {
		if v.err != nil {
			return false
		}
		same := append(seen[v.value.Token], v.value)
		seen[v.value.Token] = same
		if len(same) <= len(most) {
			return false
		}
		most = same
		return true // so that those who say yes are as many as agree
	})
	if err := t.answered(); err != nil {
		return Info{}, err
	}
	if len(most) < q.majority {
		return Info{Name: name}, nil
	}
	slices.SortFunc(most, func(a, b Info) int { return cmp.Compare(a.Fence, b.Fence) })
	return most[len(most)/2], nil // a node that was late may have a fence of its own
}
