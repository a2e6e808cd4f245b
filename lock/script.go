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

	"github.com/redis/go-redis/v9"
)

// ErrUnknownOutcome means that a command was sent and no answer came: it may
// have been carried out or not, or may yet be. An error without it means that
// nothing has happened.
var ErrUnknownOutcome = errors.New("outcome unknown: no reply from Redis")

var (
	//go:embed lua/acquire.lua
	acquireLua string
	//go:embed lua/extend.lua
	extendLua string
	//go:embed lua/release.lua
	releaseLua string
	//go:embed lua/guard.lua
	guardLua string

	acquireScript = NewScript(acquireLua)
	extendScript  = NewScript(extendLua)
	releaseScript = NewScript(releaseLua)
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
// ms left} and changes nothing. It makes body a critical section under the lock
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
	return s.begin(ctx, rdb, keys, args...).wait(ctx)
}

// A call is one run of a script. It may outlast its context: go-redis can be
// waiting for a server then, or can yet send the script.
type call struct {
	done  chan struct{} // closed when nothing more is sent or awaited
	value any
	err   error
}

func (s *Script) begin(ctx context.Context, rdb redis.UniversalClient, keys []string, args ...any) *call {
	c := &call{done: make(chan struct{})}
	run := func() {
		defer close(c.done)
		if c.err = ctx.Err(); c.err == nil {
			c.value, c.err = s.run(ctx, rdb, keys, args)
		}
	}
	if ctx.Done() == nil || ctx.Err() != nil {
		run()
	} else {
		go run()
	}
	return c
}

func (c *call) wait(ctx context.Context) (any, error) {
	select {
	case <-c.done:
		return c.value, c.err
	default:
	}
	select {
	case <-c.done:
		return c.value, c.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
	}
}

func (s *Script) run(ctx context.Context, rdb redis.UniversalClient, keys []string, args []any) (any, error) {
	value, err := send(ctx, rdb, "evalsha", s.sha, keys, args)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		value, err = send(ctx, rdb, "eval", s.src, keys, args)
	}
	return value, err
}

func send(ctx context.Context, rdb redis.UniversalClient, verb, script string, keys []string, args []any) (any, error) {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, verb, script, len(keys))
	for _, key := range keys {
		all = append(all, key)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	_ = rdb.Process(ctx, once{cmd}) // the command keeps its error
	value, err := cmd.Result()
	switch {
	case err == nil, errors.Is(err, redis.Nil):
		return value, nil
	case answered(err):
		return nil, err
	}
	return nil, fmt.Errorf("%w: %w", ErrUnknownOutcome, err)
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
