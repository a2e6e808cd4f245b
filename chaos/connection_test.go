package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// One fault at a time befalls the connection of one call, of any verb. What the call
// answers is compared with what Redis then holds, and with what the same call does
// where there is no fault.
func TestAFaultOfTheConnectionIsNeverAWrongAnswer(t *testing.T) {
	r := begin(t, "connection faults")
	server := redistest.Start(t)
	n := pick(150, 1000, 50_000)
	plan := make(chan trial, n)
	for i := range n {
		plan <- trial{
			number: i, verb: &verbs[(i+int(r.Seed))%len(verbs)], fault: &troubles[r.rnd.IntN(len(troubles))],
			seed: r.rnd.Uint64(), within: []time.Duration{60, 150, 400, 800}[r.rnd.IntN(4)] * time.Millisecond,
		}
	}
	close(plan)
	seen := &sightings{report: r}
	var lanes sync.WaitGroup
	for range 6 {
		lanes.Go(func() {
			l := newLane(seen, server)
			defer l.close()
			for next := range plan {
				l.try(next)
			}
			l.again()
		})
	}
	lanes.Wait()
	seen.judge(n)
	left := ""
	for end := time.Now().Add(15 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if left = ours(); left == "" {
			return
		}
	}
	r.broken("goroutines are left: %s", left)
}

// A trial is one call of a verb and one fault.
type trial struct {
	number int
	verb   *verb
	fault  *trouble
	seed   uint64
	within time.Duration
}

func (next trial) String() string {
	return fmt.Sprintf("trial %d, %s, %s", next.number, next.verb.name, next.fault.name)
}

// A lane makes one trial at a time, on a client and a wire of its own.
type lane struct {
	*sightings
	wire       *wire
	rdb, clean *redis.Client
	done       []outlook
}

// An outlook is what Redis is to hold of a stage from now on.
type outlook struct {
	trial trial
	name  string
	holds []string
}

func newLane(seen *sightings, server *redistest.Server) *lane {
	l := &lane{sightings: seen, wire: newWire(seen.t, server.Addr)}
	l.rdb = l.wire.client()
	l.clean = place{Socket: server.Socket}.dial().(*redis.Client)
	return l
}

func (l *lane) close() {
	_ = l.rdb.Close()
	_ = l.clean.Close()
	l.wire.cut()
}

// stage makes the queue of a trial and, of the same, the one where no fault is.
func (l *lane) stage(ctx context.Context, next trial, name string, rdb *redis.Client) *stage {
	s := &stage{keyed: next.seed%2 == 0}
	var err, errClean error
	s.clean, err = queue.New(l.clean, name, queue.Config{})
	s.q, errClean = queue.New(rdb, name, queue.Config{})
	if err = errors.Join(err, errClean); err == nil {
		err = next.verb.set(ctx, s)
	}
	if err != nil {
		l.t.Errorf("%v: %v", next, err)
	}
	return s
}

// holds is what Redis has of a queue.
func (l *lane) holds(name string) string {
	text, err := l.clean.Eval(context.Background(), inRedis, []string{"duly:{" + name + "}:"}).Text()
	if err != nil {
		l.t.Error(err)
	}
	return text
}

// model calls a verb twice where no fault is: what it answers, and what Redis holds.
func (l *lane) model(ctx context.Context, next trial) (answers, holds [2]string) {
	name := fmt.Sprint("model-", next.number)
	s := l.stage(ctx, next, name, l.clean)
	for i := range 2 {
		if i == 1 && next.verb.same {
			answers[i], holds[i] = answers[0], holds[0]
			break
		}
		var err error
		if answers[i], err = next.verb.call(ctx, s); err != nil {
			l.t.Errorf("%v: without a fault: %v", next, err)
		}
		holds[i] = l.holds(name)
	}
	if !next.verb.counts && !next.verb.reads && holds[0] != holds[1] {
		l.broken("%v: to repeat it is not harmless: %s, then %s", next, holds[0], holds[1])
	}
	return answers, holds
}

func (l *lane) try(next trial) {
	ctx, v := l.t.Context(), next.verb
	answers, want := l.model(ctx, next)
	name := fmt.Sprint("trial-", next.number)
	s := l.stage(ctx, next, name, l.rdb)
	before := l.holds(name)

	answer, err := l.struck(ctx, next, s)
	unknown := errors.Is(err, queue.ErrUnknownOutcome)
	was := l.holds(name)
	l.mu.Lock()
	switch {
	case err == nil:
		l.ok++
	case unknown:
		l.unknown++
	default:
		l.definite++
	}
	l.mu.Unlock()
	switch {
	case err == nil:
		l.promise(answer == answers[0], "%v: answered %q, not %q", next, answer, answers[0])
		l.promise(v.reads || was == want[0], "%v: answered %q, and Redis holds %s, not %s", next, answer, was, want[0])
	case !unknown && !v.reads && !v.acquire: // who waits for a lock may find it held until its context ends
		l.promise(was == before, "%v: %v, and Redis holds %s, not %s as before", next, err, was, before)
	case unknown:
		l.promise(v.reads || v.acquire || slices.Contains([]string{before, want[0]}, was), "%v: %v, and Redis holds %s, neither %s nor %s", next, err, was, before, want[0])
	}
	l.mended(ctx, next, s, name, err, answers, want)
}

// struck calls a verb while a fault is there, which strikes before the call or in the
// midst of it, and is over while the call goes on or lasts.
func (l *lane) struck(ctx context.Context, next trial, s *stage) (string, error) {
	rnd := rand.New(rand.NewPCG(next.seed, 1))
	if err := l.rdb.Ping(ctx).Err(); err != nil { // a connection is there
		l.t.Errorf("%v: before the fault: %v", next, err)
	}
	after, lasts := time.Duration(0), rnd.IntN(2) == 0
	if rnd.IntN(4) == 0 {
		after = time.Duration(rnd.IntN(1000)) * time.Microsecond
	} else {
		next.fault.strike(l.wire, rnd)
	}
	var strike sync.WaitGroup
	strike.Go(func() {
		if time.Sleep(after); after > 0 {
			next.fault.strike(l.wire, rnd)
		}
		if !lasts { // a repetition that nobody asked for gets through
			time.Sleep(time.Duration(1+rnd.IntN(60)) * time.Millisecond)
			l.wire.mend()
		}
	})
	limited, cancel := context.WithTimeout(ctx, next.within)
	defer cancel()
	late := lateness(limited)
	answer, err := next.verb.call(limited, s)
	l.saw(&l.over, max(0, late()-next.verb.grace))
	strike.Wait()
	l.fault(next.fault.name, 1)
	return answer, err
}

// mended mends the wire, repeats what has not been answered, and sees that the next
// call works.
func (l *lane) mended(ctx context.Context, next trial, s *stage, name string, err error, answers, want [2]string) {
	l.wire.mend()
	defer l.wire.bury()
	v, began := next.verb, time.Now()
	call := func(ctx context.Context, s *stage) (string, error) { return v.call(ctx, s) }
	if err == nil || v.acquire {
		call = func(ctx context.Context, s *stage) (string, error) {
			_, err := s.q.Stats(ctx)
			return answers[1], err
		}
	}
	answer, again := l.until(ctx, s, call)
	took := time.Since(began)
	if l.saw(&l.back, took); took > time.Second {
		l.t.Logf("%v: after %v it worked again only after %v", next, err, took)
	}
	if again != nil {
		l.broken("%v: does not work 10 s after the fault: %v", next, again)
		return
	}
	allowed := answers[:]
	if err != nil && !errors.Is(err, queue.ErrUnknownOutcome) {
		allowed = answers[:1]
	}
	if err != nil && v.acquire {
		answer, again = l.takeAfter(ctx, next, s, began)
		if again != nil {
			l.broken("%v: %v", next, again)
			return
		}
	}
	if err == nil {
		allowed = answers[1:]
	}
	l.promise(slices.Contains(allowed, answer), "%v: repeated after %v it answered %q, none of %q", next, err, answer, allowed)
	l.settled(next, s, name, err, want)
}

// until repeats a call until it is answered.
func (l *lane) until(ctx context.Context, s *stage, call func(context.Context, *stage) (string, error)) (answer string, err error) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		limited, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		answer, err = call(limited, s)
		cancel()
		if err == nil {
			return answer, nil
		}
	}
	return "", err
}

// takeAfter takes a lock once what a call of unknown outcome has left is released,
// which no other holder may have.
func (l *lane) takeAfter(ctx context.Context, next trial, s *stage, mended time.Time) (string, error) {
	phantom := ""
	for {
		info, err := s.clean.Locker().Inspect(ctx, thing)
		if err != nil || time.Since(mended) > 20*time.Second {
			return "", errors.Join(err, errors.New("no call has it, and it stays locked"))
		}
		if !info.Held {
			break
		}
		phantom = info.Token
		time.Sleep(2 * time.Millisecond)
	}
	if phantom != "" {
		l.saw(&l.freed, time.Since(mended))
	}
	answer, err := l.until(ctx, s, next.verb.call)
	if err == nil && phantom != "" && instance(phantom) != instance(s.lease.Token()) {
		return answer, fmt.Errorf("it was held by %s, which is not this locker", phantom)
	}
	return answer, err
}

// instance is the part of a token that tells whose it is.
func instance(token string) string {
	for i, c := range token {
		if c == '/' {
			return token[:i]
		}
	}
	return token
}

// settled compares what Redis holds when a trial is over.
func (l *lane) settled(next trial, s *stage, name string, err error, want [2]string) {
	if next.verb.reads {
		return
	}
	if next.verb.acquire {
		info, inspected := s.clean.Locker().Inspect(context.Background(), thing)
		l.promise(inspected == nil && info.Token == s.lease.Token() && info.Fence == s.lease.Fence(),
			"%v: the lease is %s, and the lock %+v, %v", next, s.lease.Token(), info, inspected)
	}
	allowed := want[:]
	if err == nil {
		allowed = want[:1]
	}
	was := l.holds(name)
	l.promise(slices.Contains(allowed, was), "%v: after %v and a repetition Redis holds %s, none of %s", next, err, was, allowed)
	l.done = append(l.done, outlook{next, name, []string{was}})
}

// again looks once more: what was late has arrived.
func (l *lane) again() {
	for _, o := range l.done {
		was := l.holds(o.name)
		l.promise(slices.Contains(o.holds, was), "%v: at the end Redis holds %s, not %s", o.trial, was, o.holds[0])
	}
}
