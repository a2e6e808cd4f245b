package lock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
)

// The set of these tests is a string in Redis, such as "1.1 2.1 1.2". Who holds
// its lock reads it, adds an element and writes it back whole. A holder that is
// late overwrites what others have added since, and their elements are lost,
// unless the store refuses it: Jepsen's set workload, with a known culprit.

var (
	setKeys  = []string{"{set}:fence", "{set}:elements"}
	readSet  = lock.FenceCheck(`return {'elements', redis.call('GET', KEYS[2]) or ''}`)
	writeSet = lock.FenceCheck(`redis.call('SET', KEYS[2], ARGV[2]) return {'written'}`)
)

// An adder adds elements to the set.
type adder struct {
	locker *lock.Locker
	rdb    redis.UniversalClient
	fenced bool
	pause  func() // after reading, with no eye for the lease; or nil
}

// add returns when the element was written, as far as it is told.
func (a *adder) add(ctx context.Context, element string) error {
	for pause := a.pause; ; {
		lease, err := a.locker.Acquire(ctx, "set", 30*time.Millisecond)
		if err != nil && ctx.Err() == nil {
			continue // such as that the machine was busy for too long
		}
		if err != nil {
			return err
		}
		done, err := a.replace(ctx, lease.Fence(), element, pause)
		_ = lease.Release(ctx)
		pause = nil
		if done || err != nil {
			return err
		}
	}
}

// replace reads the set and writes it with one element more. With fences the
// read is checked too: from then on no earlier holder writes what was read.
func (a *adder) replace(ctx context.Context, fence uint64, element string, pause func()) (done bool, err error) {
	var elements string
	if a.fenced {
		var reply any
		reply, err = readSet.Run(ctx, a.rdb, setKeys, fence)
		if err != nil || word(reply) == "stale" {
			return false, err
		}
		elements = reply.([]any)[1].(string)
	} else if elements, err = a.rdb.Get(ctx, setKeys[1]).Result(); err != nil && !errors.Is(err, redis.Nil) {
		return false, err
	}
	if pause != nil {
		pause()
	}
	elements += " " + element
	if !a.fenced {
		return true, a.rdb.Set(ctx, setKeys[1], elements, 0).Err()
	}
	reply, err := writeSet.Run(ctx, a.rdb, setKeys, fence, elements)
	return err == nil && word(reply) == "written", err
}

// A set is what a test sees of it.
type set struct {
	*redis.Client
	fenced bool

	mu           sync.Mutex
	acknowledged []string // guarded by mu
}

func (s *set) note(element string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acknowledged = append(s.acknowledged, element)
}

// untilWritten returns when somebody has written the set since its call.
func (s *set) untilWritten(ctx context.Context) {
	elements := func() string { return s.Get(ctx, setKeys[1]).Val() }
	for before := elements(); elements() == before && ctx.Err() == nil; {
		<-time.After(time.Millisecond)
	}
}

// judge fails the test unless fences, and only they, keep what was acknowledged.
func (s *set) judge(t *testing.T, pauses int) {
	t.Helper()
	there := strings.Fields(s.Get(t.Context(), setKeys[1]).Val())
	gone := 0
	for _, element := range s.acknowledged {
		if !slices.Contains(there, element) {
			gone++
		}
	}
	t.Logf("%d of %d acknowledged elements lost in %d pauses", gone, len(s.acknowledged), pauses)
	if s.fenced != (gone == 0) {
		t.Errorf("fenced %v: %d elements lost in %d pauses", s.fenced, gone, pauses)
	}
}

// onSets runs a test on a set with fences, and on one without.
func onSets(t *testing.T, test func(*testing.T, *redistest.Server, *set)) {
	t.Helper()
	for _, fenced := range []bool{true, false} {
		t.Run(fmt.Sprint("fenced ", fenced), func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			test(t, server, &set{Client: server.Client(), fenced: fenced})
		})
	}
}

const quickHolders, pausesOfSlow = 3, 8

func TestFencesLoseNoUpdateOfAPausedHolder(t *testing.T) {
	t.Parallel()
	onSets(t, func(t *testing.T, _ *redistest.Server, s *set) {
		var slow atomic.Bool
		slow.Store(true)
		run := func(id int, pause func(), more func(n int) bool) {
			locker, err := lock.New(s, pollOften)
			a := &adder{locker, s, s.fenced, pause}
			for n := 1; err == nil && more(n); n++ {
				element := fmt.Sprint(id, ".", n)
				if err = a.add(t.Context(), element); err == nil {
					s.note(element)
				}
				<-time.After(time.Millisecond)
			}
			if err != nil {
				t.Error(err)
			}
		}
		var all sync.WaitGroup
		for id := range quickHolders {
			all.Go(func() { run(id+2, nil, func(int) bool { return slow.Load() }) })
		}
		run(1, func() { s.untilWritten(soon(t)) }, func(n int) bool { return n <= pausesOfSlow })
		slow.Store(false)
		all.Wait()
		s.judge(t, pausesOfSlow)
	})
}

// The holder here is a process that the kernel stops, so that its contexts and
// timers stand still too.
func TestFencesLoseNoUpdateOfAStoppedProcess(t *testing.T) {
	t.Parallel()
	onSets(t, func(t *testing.T, server *redistest.Server, s *set) {
		var all sync.WaitGroup
		reads := make(chan struct{}, pausesOfSlow)
		run := func(id, pauses int) *process {
			p := program{Name: "add", ID: id, Socket: server.Socket, Fenced: s.fenced, Pauses: pauses}.spawn(t)
			all.Go(func() {
				for p.out.Scan() {
					if line := p.out.Text(); line == hasRead {
						reads <- struct{}{}
					} else {
						s.note(line)
					}
				}
			})
			return p
		}
		slow := run(1, pausesOfSlow)
		var quick [quickHolders]*process
		for i := range quick {
			quick[i] = run(i+2, 0)
		}
		for range pausesOfSlow {
			finished(t, reads)
			slow.signal(t, syscall.SIGSTOP)
			slow.untilStopped(t)
			_, err := fmt.Fprintln(slow.in, "write")
			must(t, err)
			s.untilWritten(soon(t))
			slow.signal(t, syscall.SIGCONT)
		}
		for _, p := range quick {
			_ = p.in.Close()
		}
		all.Wait()
		s.judge(t, pausesOfSlow)
	})
}

// hasRead is what an adder prints when it has read the set. It goes on when it
// is told to.
const hasRead = "has read"

// add runs an adder until standard input ends, or for so many pauses, and prints
// what was acknowledged.
func (p program) add(locker *lock.Locker) error {
	rdb := redis.NewClient(&redis.Options{Network: "unix", Addr: p.Socket, MaintNotificationsConfig: plain})
	defer func() { _ = rdb.Close() }()
	a := &adder{locker, rdb, p.Fenced, nil}
	if p.Pauses > 0 {
		told := bufio.NewScanner(os.Stdin)
		a.pause = func() { fmt.Println(hasRead); told.Scan() }
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	more := func(n int) bool { return n <= p.Pauses }
	if p.Pauses == 0 {
		ended := inputEnds()
		more = func(int) bool { return !ended.Load() }
	}
	for n := 1; more(n); n++ {
		element := fmt.Sprint(p.ID, ".", n)
		if err := a.add(ctx, element); err != nil {
			return err
		}
		fmt.Println(element)
		<-time.After(time.Millisecond)
	}
	return nil
}

// A holder can also be late between another's read and its write. Only a read
// that is checked too shuts it out.
func TestFenceOfAReadShutsOutEarlierHolders(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		keys := []string{r.key("fence"), r.key("elements")}
		run := func(script *lock.Script, l *lock.Lease, args ...any) any {
			t.Helper()
			reply, err := script.Run(t.Context(), r, keys, append([]any{l.Fence()}, args...)...)
			must(t, err)
			return word(reply)
		}
		late := r.take(t, "set", time.Minute)
		must(t, r.Del(t.Context(), r.key("set")).Err()) // as if its time were over
		next := r.take(t, "set", time.Minute)
		if got := run(readSet, next); got != "elements" {
			t.Fatalf("the next holder reads: %v", got)
		}
		if got := run(writeSet, late, "late"); got != "stale" || r.value(t, "elements") != "" {
			t.Fatalf("the late holder writes: %v", got)
		}
		if got := run(writeSet, next, "next"); got != "written" || r.value(t, "elements") != "next" {
			t.Fatalf("the next holder writes: %v", got)
		}
		if got := run(readSet, late); got != "stale" {
			t.Fatalf("the late holder reads: %v", got)
		}
	})
}
