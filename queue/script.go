package queue

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strings"

	"github.com/dulyhq/duly/lock"
)

// Errors of a call that reached Redis.
var (
	// ErrUnknownOutcome: the command was sent and no answer came. It may have
	// been carried out or not. An error that is none of these is Redis's own
	// refusal or a failure to connect: nothing has happened.
	ErrUnknownOutcome = lock.ErrUnknownOutcome

	// ErrUnreplicated: the tasks are in the queue, and fewer replicas than
	// [Config.ReplicaAcks] have confirmed them in time, or that is not known: a
	// failover can lose them. Enqueue them again: what is then answered, also that
	// they were there, has been confirmed.
	ErrUnreplicated = lock.ErrUnreplicated

	// ErrFull: Redis is at its memory limit and takes nothing new.
	ErrFull = errors.New("redis is at its memory limit")

	// ErrWrongType: a key of the queue holds something of another type.
	ErrWrongType = errors.New("a key of the queue holds another type")
)

//go:embed lua/*.lua
var lua embed.FS

// The scripts, each with what it begins with.
var (
	enqueueScript    = lock.NewScript(source("clock", "key", "conflict", "enqueue"))
	popScript        = lock.Guarded(source("clock", "poll") + lock.Locks + source("traces", "room", "soon", "head", "key", "cancelled", "reclaim", "park", "pop", "again", "deal", "grant", "answer"))
	settleScript     = lock.NewScript(lock.Locks + source("clock", "key", "schedule", "held", "cancelled", "traces", "settle", "plan", "land"))
	extendScript     = lock.NewScript(lock.Locks + source("clock", "key", "cancelled", "extend"))
	cancelScript     = lock.NewScript(source("clock", "key", "waiting", "traces", "cancel"))
	rescheduleScript = lock.NewScript(source("clock", "key", "waiting", "schedule", "reschedule"))
	progressScript   = lock.NewScript(source("progress"))
	waitScript       = lock.NewScript(source("clock", "traces", "wait"))
	getScript        = lock.NewScript(source("clock", "get"))
	listScript       = lock.NewScript(source("clock", "key", "list"))
	statsScript      = lock.NewScript(source("clock", "stats"))
	reviveScript     = lock.NewScript(source("clock", "schedule", "revive"))
	purgeScript      = lock.NewScript(source("clock", "purge"))
	nowScript        = lock.NewScript(source("clock", "now"))
	pauseScript      = lock.NewScript(source("pause"))
	limitScript      = lock.NewScript(source("limit"))
)

// source joins Lua files. A missing one is found by any test, at start-up.
func source(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		text, err := lua.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err)
		}
		b.Write(text)
	}
	return b.String()
}

// run runs a verb's script and names its errors.
func (q *Queue) run(ctx context.Context, script *lock.Script, keys []string, args ...any) (any, error) {
	return named(script.Run(ctx, q.rdb, keys, args...))
}

// runReplicated is run, confirmed by replicas.
func (q *Queue) runReplicated(ctx context.Context, script *lock.Script, keys []string, args ...any) (any, error) {
	return named(script.RunReplicated(ctx, q.rdb, q.cfg.ReplicaAcks, keys, args...))
}

// named names the error of a script that ended.
func named(reply any, err error) (any, error) {
	switch {
	case err == nil || errors.Is(err, ErrUnknownOutcome):
		return reply, err
	case strings.Contains(err.Error(), "OOM command not allowed"):
		return nil, fmt.Errorf("%w: %w", ErrFull, err)
	case strings.Contains(err.Error(), "WRONGTYPE"):
		return nil, fmt.Errorf("%w: %w", ErrWrongType, err)
	}
	return nil, err
}

// A reply is a script's, read by position; what is not as expected reads as
// zero.
type reply []any

func (r reply) at(i int) any {
	if i < len(r) {
		return r[i]
	}
	return nil
}

func (r reply) text(i int) string {
	s, _ := r.at(i).(string)
	return s
}

func (r reply) number(i int) int64 {
	n, _ := r.at(i).(int64)
	return n
}

func (r reply) list(i int) reply {
	l, _ := r.at(i).([]any)
	return l
}
