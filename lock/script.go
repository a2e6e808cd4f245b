package lock

import (
	"context"
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1; nothing is secured by it
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// ErrUnknownOutcome means that a command was sent and no answer came: it may
// have been carried out or not, or may yet be. An error without it means that
// nothing has happened.
var ErrUnknownOutcome = errors.New("outcome unknown: no reply from Redis")

// ErrUnreplicated means that fewer replicas than asked for have confirmed a write in
// time, or that it is not known. A lock is then released in the background; a lease
// that could not be extended is held as long as before.
var ErrUnreplicated = errors.New("too few replicas have it")

var (
	//go:embed lua/line.lua
	lineLua string
	//go:embed lua/own.lua
	ownLua string
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/force.lua
	forceLua string
	//go:embed lua/extend.lua
	extendLua string
	//go:embed lua/raise.lua
	raiseLua string
	//go:embed lua/inspect.lua
	inspectLua string
	//go:embed lua/guard.lua
	guardLua string

	acquireScript = NewScript("local now\n" + lineLua + ownLua + acquireLua)
	releaseScript = NewScript("local now\n" + lineLua + ownLua + releaseLua)
	forceScript   = NewScript("local now\n" + lineLua + ownLua + forceLua)
	extendScript  = NewScript(extendLua)
	raiseScript   = NewScript(raiseLua)
	inspectScript = NewScript(inspectLua)
)

// A Script is a Lua script on Redis that a call sends once: go-redis's
// automatic retries, by which a lost reply makes a script act twice, are off
// for it whatever the client's options say. Its methods may be called
// concurrently.
type Script struct {
	src, sha string
}

// NewScript returns the script with the given source.
func NewScript(src string) *Script {
	sum := sha1.Sum([]byte(src)) //nolint:gosec // as above
	return &Script{src: src, sha: hex.EncodeToString(sum[:])}
}

// Guarded returns a script that runs body only while no other holds the lock
// KEYS[1]; ARGV[1] is the token of the caller's own lease or empty, ARGV[2] the
// TTL in ms that a lock without one is given. Otherwise it answers {"locked",
// ms left} and runs nothing of body. It makes body a critical section under the lock
// in one round trip, where taking the lock would cost three.
func Guarded(body string) *Script { return NewScript(guardLua + body) }

// once keeps go-redis from sending a command again.
type once struct{ *redis.Cmd }

// NoRetry says so.
func (once) NoRetry() bool { return true }

// Run runs the script and returns its reply; a nil reply is nil without error.
// It returns when ctx ends, even if the client was not told to honour contexts.
// The error is Redis's own if Redis refused, matches ErrUnknownOutcome if no
// answer came, and matches ctx.Err() too if ctx ended.
func (s *Script) Run(ctx context.Context, rdb redis.UniversalClient, keys []string, args ...any) (any, error) {
	return s.begin(ctx, rdb, acks{}, invocation{keys, args}).wait(ctx)
}

// RunReplicated is Run, and returns without an error only when so many replicas have
// all that Redis had written when the script ended, be it by this run or before. That
// is waited for during a second, and three quarters of what ctx leaves, at most; then
// the reply comes with [ErrUnreplicated]: the script has run.
func (s *Script) RunReplicated(ctx context.Context, rdb redis.UniversalClient, replicas int, keys []string, args ...any) (any, error) {
	a := acks{replicas: replicas, wait: time.Second, always: true}
	return s.begin(ctx, rdb, a, invocation{keys, args}).wait(ctx)
}

// An invocation is what a script is run on.
type invocation struct {
	keys []string
	args []any
}

// acks is how many replicas must confirm what a script has written, and for how
// long that is waited for.
type acks struct {
	replicas int
	wait     time.Duration
	always   bool // also if the script does not answer "ok"
}

// within does not wait until ctx ends, for the answer that they are too few would
// come too late.
func (a acks) within(ctx context.Context) acks {
	if deadline, ok := ctx.Deadline(); ok {
		a.wait = min(a.wait, time.Until(deadline)*3/4)
	}
	a.wait = max(a.wait, time.Millisecond) // 0 would be for ever
	return a
}

// A call is one run of a script. It may outlast its context: go-redis can be
// waiting for a server then, or can yet send the script.
type call struct {
	done  chan struct{} // closed when nothing more is sent or awaited
	value any
	err   error
}

func (s *Script) begin(ctx context.Context, rdb redis.UniversalClient, a acks, on invocation) *call {
	return s.beginAll(ctx, rdb, a, []invocation{on})[0]
}

// beginAll runs a script on many things in one round trip, a trip a node in a
// cluster.
func (s *Script) beginAll(ctx context.Context, rdb redis.UniversalClient, a acks, on []invocation) []*call {
	calls := make([]*call, len(on))
	done := make(chan struct{})
	for i := range on {
		calls[i] = &call{done: done}
	}
	run := func() {
		defer close(done)
		if err := ctx.Err(); err != nil {
			for _, c := range calls {
				c.err = err
			}
			return
		}
		s.run(ctx, rdb, a, on, calls)
	}
	if ctx.Done() == nil || ctx.Err() != nil {
		run()
	} else {
		go run()
	}
	return calls
}

// over says whether the call is.
func (c *call) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *call) wait(ctx context.Context) (any, error) {
	if c.over() {
		return c.value, c.err
	}
	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
	}
}

// run sends a script by its name, and again as a whole where Redis does not
// know it.
func (s *Script) run(ctx context.Context, rdb redis.UniversalClient, a acks, on []invocation, calls []*call) {
	send(ctx, rdb, a, "evalsha", s.sha, on, calls)
	var again []invocation
	var unknown []*call
	for i, c := range calls {
		if redis.HasErrorPrefix(c.err, "NOSCRIPT") {
			again, unknown = append(again, on[i]), append(unknown, c)
		}
	}
	if len(again) > 0 {
		send(ctx, rdb, a, "eval", s.src, again, unknown)
	}
}

func send(ctx context.Context, rdb redis.UniversalClient, a acks, verb, script string, on []invocation, calls []*call) {
	cmds := make([]*redis.Cmd, len(on))
	for i, one := range on {
		all := make([]any, 0, 3+len(one.keys)+len(one.args))
		all = append(all, verb, script, len(one.keys))
		for _, key := range one.keys {
			all = append(all, key)
		}
		cmds[i] = redis.NewCmd(ctx, append(all, one.args...)...)
	}
	var unconfirmed error
	switch {
	case a.replicas > 0:
		unconfirmed = confirmed(ctx, rdb, a, cmds, on[0].keys[0])
	case len(cmds) == 1:
		_ = rdb.Process(ctx, once{cmds[0]}) // the command keeps its error
	default:
		_, _ = pipeline(ctx, rdb, cmds).Exec(ctx)
	}
	for i, cmd := range cmds {
		calls[i].value, calls[i].err = outcome(cmd)
		if calls[i].err == nil && (a.always || word(calls[i].value) == "ok") { // else there is nothing to confirm
			calls[i].err = unconfirmed
		}
		if cluster, ok := rdb.(*redis.ClusterClient); ok && stale(cmd.Err()) {
			cluster.ReloadState(ctx)
		}
	}
}

// stale reports whether the client of a cluster may have an old map of it. It asks for
// a new one by itself only when it retries, and what is sent once it does not retry:
// it would go on asking a dead node, though another has its slots, for a minute.
func stale(err error) bool {
	var refused redis.Error
	if errors.As(err, &refused) {
		return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "READONLY")
	}
	return err != nil && !errors.Is(err, redis.ErrClosed) && !errors.Is(err, context.Canceled)
}

func pipeline(ctx context.Context, rdb redis.UniversalClient, cmds []*redis.Cmd) redis.Pipeliner {
	pipe := rdb.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, once{cmd})
	}
	return pipe
}

// confirmed sends commands and asks, on the same connection, how many replicas
// have what they wrote: WAIT knows of its own connection only. The commands must
// be for the slot of key.
func confirmed(ctx context.Context, rdb redis.UniversalClient, a acks, cmds []*redis.Cmd, key string) error {
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		master, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		rdb = master
	}
	pipe := pipeline(ctx, rdb, cmds)
	wait := redis.NewIntCmd(ctx, "wait", a.replicas, a.within(ctx).wait.Milliseconds())
	_ = pipe.Process(ctx, wait)
	_, _ = pipe.Exec(ctx)
	got, err := wait.Result()
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnreplicated, err)
	case got < int64(a.replicas):
		return fmt.Errorf("%w: %d of %d", ErrUnreplicated, got, a.replicas)
	}
	return nil
}

// outcome is the reply to a command, or what is known of it without one.
func outcome(cmd *redis.Cmd) (any, error) {
	value, err := cmd.Result()
	switch {
	case err == nil, errors.Is(err, redis.Nil):
		return value, nil
	case answered(err):
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
}

// word is the first element of a script's reply.
func word(reply any) string {
	if words, _ := reply.([]any); len(words) > 0 {
		first, _ := words[0].(string)
		return first
	}
	return ""
}

// answered reports whether err proves that the script was not run, or was
// refused by Redis itself.
func answered(err error) bool {
	var refused redis.Error
	if errors.As(err, &refused) || errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && strings.HasPrefix(op.Op, "dial")
}
