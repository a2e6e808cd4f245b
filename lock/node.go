package lock

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// cleanupTimeout bounds what is sent on behalf of a caller who has gone.
const cleanupTimeout = time.Second

const (
	// claimTTL is how long a lock that was granted to a waiter stays its own
	// without being claimed: what a dead waiter costs those behind it.
	claimTTL = time.Second

	// aliveTTL is how long the waiters of a process that has stopped looking
	// are kept in line.
	aliveTTL = 10 * time.Second

	// fenceTTL is how long the fence of a single name is kept. By then the
	// server's clock, from which the next one starts, has passed it.
	fenceTTL = 24 * time.Hour
)

// An ask is a request for a lock.
type ask struct {
	name, token string
	ttl         time.Duration
	stand       bool   // in line, if another holds it
	lease       *Lease // that it is for, once there is one
}

// A grant is the answer yes.
type grant struct {
	fence uint64
	sent  time.Time // before which the TTL began

	// repair, if any, goes on with what the grant left undone, while the lease
	// lasts.
	repair func(*Lease)
}

// A renewal is one lease that is to be extended, and what came of it.
type renewal struct {
	ask
	fence uint64 // 0 if it is not known

	sent time.Time
	err  error // ErrExpired, ErrLost, or that it failed
}

// A node is one Redis that keeps locks.
type node struct {
	rdb      redis.UniversalClient
	cfg      Config
	channel  string
	fixed    []any // what a script with a line is told besides the token
	mu       sync.Mutex
	inFlight map[string]*flight // guarded: requests for a lock without an answer, by token
}

// A flight is the requests for one token that are under way.
type flight struct {
	requests int
	landed   chan struct{} // closed when there are none
}

func newNode(rdb redis.UniversalClient, cfg Config) *node {
	n := &node{rdb: rdb, cfg: cfg, channel: cfg.Prefix + "{wake}", inFlight: make(map[string]*flight)}
	n.fixed = []any{n.fenceTTL(), claimTTL.Milliseconds(), n.channel, n.publish(), n.unfair()}
	return n
}

// unfair is "1" if who does not stand in line is told that a lock is free.
func (n *node) unfair() string {
	if n.cfg.Unfair {
		return "1"
	}
	return "0"
}

// key is the Redis key of a name.
func (n *node) key(name string) string {
	if n.cfg.FenceKey != "" {
		return n.cfg.Prefix + name
	}
	return n.cfg.Prefix + "{" + name + "}"
}

// keys are those of a name: the lock, its fence, who waits, and who is alive.
// Names have no braces, so none can spell those of another.
func (n *node) keys(name string) []string {
	key := n.key(name)
	if n.cfg.FenceKey != "" {
		return []string{key, n.cfg.FenceKey, n.cfg.Prefix + "{line}:" + name, n.cfg.Prefix + "{alive}:" + name}
	}
	return []string{key, key + ":fence", key + ":line", key + ":alive"}
}

// fenceTTL is how long a fence is kept, in ms: for ever, told as 0, if it is
// shared.
func (n *node) fenceTTL() int64 {
	if n.cfg.FenceKey != "" {
		return 0
	}
	return fenceTTL.Milliseconds()
}

// lineArgs begin the arguments of a script with a line; there is room for acquire's.
func (n *node) lineArgs(name, token string) []any {
	args := append(append(make([]any, 0, 12), token), n.fixed...)
	return append(args, name, n.cfg.Parked, n.cfg.ParkedWake)
}

// ask asks once for a lock. The error is a *HeldError if another holds it.
func (n *node) ask(ctx context.Context, a ask) (grant, error) {
	landed, err := n.depart(a)
	if err != nil {
		return grant{}, err
	}
	alive := int64(0)
	if a.stand {
		alive = aliveTTL.Milliseconds()
	}
	args := append(n.lineArgs(a.name, a.token), a.ttl.Milliseconds(), n.cfg.AdoptTTL.Milliseconds(), alive)
	g := grant{sent: time.Now()}
	call := acquireScript.begin(ctx, n.rdb, n.acks(a.ttl), invocation{n.keys(a.name), args})
	reply, err := call.wait(ctx)
	if call.over() {
		landed()
	} else {
		go func() { <-call.done; landed() }()
	}
	if err == nil {
		g.fence, err = n.answer(reply, a.name)
	}
	return g, err
}

// answer reads a reply to a request for a lock.
func (n *node) answer(reply any, name string) (fence uint64, err error) {
	words, _ := reply.([]any)
	if len(words) == 4 && words[0] == "held" {
		left, _ := words[1].(int64)
		value, _ := words[2].(string)
		if words[3] == "adopted" {
			n.cfg.Observer(Event{Kind: Adopted, Name: name, Owner: ownerOf(value)})
		}
		return 0, newHeldError(name, value, left)
	}
	if len(words) == 2 && words[0] == "ok" {
		digits, _ := words[1].(string)
		if fence, err = strconv.ParseUint(digits, 10, 64); err == nil {
			return fence, nil
		}
	}
	return 0, fmt.Errorf("unexpected reply %v", reply)
}

// depart notes a request for a lock, unless it is no longer wanted.
func (n *node) depart(a ask) (landed func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if a.lease.over() {
		return nil, ErrReleased
	}
	f := n.inFlight[a.token]
	if f == nil {
		f = &flight{landed: make(chan struct{})}
		n.inFlight[a.token] = f
	}
	f.requests++
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if f.requests--; f.requests == 0 {
			delete(n.inFlight, a.token)
			close(f.landed)
		}
	}, nil
}

// landed is closed when no request for a token is under way.
func (n *node) landed(token string) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f := n.inFlight[token]; f != nil {
		return f.landed
	}
	return closed
}

// closed is a channel that is.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// release gives up a lock, or a place in its line. It answers "ok", "absent" or
// "foreign". Where a request for the lock is still under way it is released again
// when that has landed: it may be the later to arrive.
func (n *node) release(ctx context.Context, name, token string) (string, error) {
	if n.landed(token) != closed {
		n.abandon(name, token)
	}
	reply, err := releaseScript.Run(ctx, n.rdb, n.keys(name), n.lineArgs(name, token)...)
	return word(reply), err
}

// abandon releases in the background what nobody wants any more, in three tries: a
// place in line that is forgotten would cost the others a second.
func (n *node) abandon(name, token string) {
	go func() {
		<-n.landed(token) // the client's own limits bound it
		for range 3 {
			ctx, cancel := context.WithTimeout(context.Background(), cleanupTimeout/3)
			_, err := n.release(ctx, name, token)
			cancel()
			if err == nil {
				return
			}
		}
	}()
}

// extend extends leases in one round trip, a trip a node in a cluster.
func (n *node) extend(ctx context.Context, batch []*renewal) {
	on := make([]invocation, len(batch))
	sent := time.Now()
	for i, r := range batch {
		on[i] = invocation{keys: []string{n.key(r.name)}, args: []any{r.token, r.ttl.Milliseconds()}}
		r.sent = sent
	}
	for i, call := range n.extensions(ctx, batch, on) {
		batch[i].note(call.wait(ctx))
	}
}

// extensions sends extensions together, unless each is to be confirmed by
// replicas, of which every slot has others.
func (n *node) extensions(ctx context.Context, batch []*renewal, on []invocation) []*call {
	if n.cfg.ReplicaAcks == 0 {
		return extendScript.beginAll(ctx, n.rdb, acks{}, on)
	}
	calls := make([]*call, len(on))
	for i := range on {
		calls[i] = extendScript.begin(ctx, n.rdb, n.acks(batch[i].ttl), on[i])
	}
	return calls
}

// note takes note of the reply to an extension.
func (r *renewal) note(reply any, err error) {
	r.err = err
	switch words, _ := reply.([]any); {
	case err != nil:
	case word(reply) == "absent":
		r.err = ErrExpired
	case word(reply) == "foreign":
		r.err = ErrLost
	case len(words) == 2:
		digits, _ := words[1].(string)
		r.fence, r.err = strconv.ParseUint(digits, 10, 64)
	default:
		r.err = fmt.Errorf("unexpected reply %v", reply)
	}
}

// raise gives a lock that the token holds the fence that the nodes agree on. Later
// fences exceed it.
func (n *node) raise(ctx context.Context, a ask, fence uint64) error {
	on := invocation{n.keys(a.name)[:2], []any{a.token, strconv.FormatUint(fence, 10), n.fenceTTL()}}
	reply, err := raiseScript.begin(ctx, n.rdb, n.acks(a.ttl), on).wait(ctx)
	if err == nil && word(reply) != "ok" {
		err = ErrLost
	}
	return err
}

// force frees a lock whoever holds it, and says whether it was held.
func (n *node) force(ctx context.Context, name string) (bool, error) {
	reply, err := forceScript.Run(ctx, n.rdb, n.keys(name), n.lineArgs(name, "")...)
	return word(reply) == "ok", err
}

// inspect shows a lock as it stands.
func (n *node) inspect(ctx context.Context, name string) (Info, error) {
	keys := n.keys(name)
	reply, err := inspectScript.Run(ctx, n.rdb, []string{keys[0], keys[2]})
	words, _ := reply.([]any)
	if err == nil && len(words) != 3 {
		err = fmt.Errorf("unexpected reply %v", reply)
	}
	if err != nil {
		return Info{}, err
	}
	value, _ := words[0].(string)
	left, _ := words[1].(int64)
	waiters, _ := words[2].(int64)
	return newInfo(name, value, left, waiters), nil
}

// acks is how many replicas must confirm a lock of a TTL, and for how long that is
// waited for.
func (n *node) acks(ttl time.Duration) acks {
	return acks{replicas: n.cfg.ReplicaAcks, wait: min(ttl/10, time.Second)}
}
