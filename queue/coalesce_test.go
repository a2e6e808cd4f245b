package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// A gate lets scripts through one by one, once they have been executed: it keeps
// back the replies.
type gate struct {
	hooks
	opens chan error // what becomes of the next reply

	mu   sync.Mutex
	sent []int // tasks of each enqueue script
}

func (g *gate) sizes() []int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.sent)
}

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" && cmd.Name() != "eval" {
			return next(ctx, cmd)
		}
		err := next(ctx, cmd)
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			return err
		}
		g.mu.Lock()
		size := 0
		for _, arg := range cmd.Args() {
			if text, ok := arg.(string); ok && strings.HasPrefix(text, "\x01") { // a record
				size++
			}
		}
		g.sent = append(g.sent, size)
		g.mu.Unlock()
		if fate := <-g.opens; fate != nil {
			cmd.SetErr(fate)
			return fate
		}
		return err
	}
}

// A hall is a queue in virtual time whose callers meet at a gate.
type hall struct {
	*gate
	q     *queue.Queue
	rdb   *redis.Client
	calls map[string]*caller
}

// A caller is an Enqueue under way.
type caller struct {
	cancel  context.CancelFunc
	receipt queue.Receipt
	err     error
	back    bool
}

func inHall(t *testing.T, test func(t *testing.T, h *hall)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dial := redistest.Virtual(t)
		h := &hall{gate: &gate{opens: make(chan error, 100)}, rdb: dial(), calls: make(map[string]*caller)}
		defer close(h.opens) // a test that failed leaves calls at the gate
		rdb := dial()
		rdb.AddHook(h.gate)
		var err error
		h.q, err = queue.New(rdb, "q", queue.Config{})
		must(t, err)
		test(t, h)
		for name, c := range h.calls {
			if synctest.Wait(); !c.back {
				t.Errorf("the call of %s has not returned", name)
			}
		}
	})
}

// call enqueues in the background, until the call waits.
func (h *hall) call(t *testing.T, name, id string, opts ...queue.EnqueueOption) {
	ctx, cancel := context.WithCancel(t.Context())
	c := &caller{cancel: cancel}
	h.calls[name] = c
	go func() {
		c.receipt, c.err = h.q.Enqueue(ctx, task(id), opts...)
		c.back = true
	}()
	synctest.Wait()
}

// open lets replies through.
func (h *hall) open(fates ...error) {
	for _, fate := range fates {
		h.opens <- fate
	}
	synctest.Wait()
}

func (h *hall) want(t *testing.T, name string, outcome queue.Outcome) {
	t.Helper()
	c := h.calls[name]
	if !c.back || c.err != nil || c.receipt.Outcome != outcome {
		t.Errorf("%s: back %v with %+v, %v; want %s", name, c.back, c.receipt, c.err, outcome)
	}
}

func TestConcurrentEnqueuesShareARoundTrip(t *testing.T) {
	inHall(t, func(t *testing.T, h *hall) {
		const worth = 64 // a trip while another is on its way
		h.call(t, "first", "first")
		for i := range 600 {
			if i == worth-1 {
				equal(t, "sent while one is on its way", h.sizes(), []int{1})
			}
			h.call(t, fmt.Sprint(i), fmt.Sprint(i))
		}
		equal(t, "sent while one is on its way", h.sizes(), []int{1, worth})
		h.open(nil, nil, nil, nil)
		equal(t, "sizes", h.sizes(), []int{1, worth, queue.MaxBatch, 600 - worth - queue.MaxBatch})
		h.want(t, "first", queue.Added)
		for i := range 600 {
			h.want(t, fmt.Sprint(i), queue.Added)
			equal(t, "receipt", h.calls[fmt.Sprint(i)].receipt.ID, i)
		}
		h.call(t, "lone", "lone")
		equal(t, "sizes", h.sizes()[4:], []int{1})
		h.open(nil)
	})
}

// A trip that takes no more is worth it, or it would hold back those behind.
func TestAFullTripLeavesThoughItIsSmall(t *testing.T) {
	inHall(t, func(t *testing.T, h *hall) {
		h.call(t, "first", "first")
		h.call(t, "one", "a")
		equal(t, "sizes", h.sizes(), []int{1})
		h.call(t, "two", "a") // one ID twice does not go together
		equal(t, "sizes", h.sizes(), []int{1, 1})
		h.open(nil, nil, nil)
		h.want(t, "one", queue.Added)
		h.want(t, "two", queue.Kept)
	})
}

func TestEachOfSharedEnqueuesHasItsOwnOptionsAndReceipt(t *testing.T) {
	inHall(t, func(t *testing.T, h *hall) {
		h.call(t, "first", "a", queue.In(time.Hour))
		h.call(t, "kept", "a")
		h.call(t, "second replaces", "b", queue.In(time.Minute), queue.OnConflict(queue.Replace)) // no such ID as yet
		h.call(t, "at", "c", queue.At(time.UnixMicro(9e15)))
		h.call(t, "in", "d", queue.In(time.Minute))
		h.call(t, "replaced", "a", queue.In(time.Minute), queue.OnConflict(queue.Replace)) // waits for the next: one ID twice
		h.call(t, "minted", "")
		h.open(nil, nil, nil)
		equal(t, "sizes", h.sizes(), []int{1, 4, 2})
		now := time.Now()
		for name, want := range map[string]queue.Receipt{
			"first":           {ID: "a", Outcome: queue.Added, State: queue.Missing, Due: now.Add(time.Hour)},
			"kept":            {ID: "a", Outcome: queue.Kept, State: queue.Due, Due: now.Add(time.Hour)},
			"second replaces": {ID: "b", Outcome: queue.Added, State: queue.Missing, Due: now.Add(time.Minute)},
			"at":              {ID: "c", Outcome: queue.Added, State: queue.Missing, Due: time.UnixMicro(9e15)},
			"in":              {ID: "d", Outcome: queue.Added, State: queue.Missing, Due: now.Add(time.Minute)},
			"replaced":        {ID: "a", Outcome: queue.Replaced, State: queue.Due, Due: now.Add(time.Minute)},
		} {
			got := h.calls[name].receipt
			if got.Due.UnixMicro() != want.Due.UnixMicro() {
				t.Errorf("%s: due %v, want %v", name, got.Due, want.Due)
			}
			got.Due = want.Due
			equal(t, name, got, want)
		}
		h.want(t, "minted", queue.Added)
		equal(t, "a minted ID", len(h.calls["minted"].receipt.ID), 36)
	})
}

func TestACallerThatGivesUpTakesNobodyAlong(t *testing.T) {
	inHall(t, func(t *testing.T, h *hall) {
		h.call(t, "sent", "sent")
		for _, id := range []string{"before", "waits", "after"} {
			h.call(t, id, id)
		}
		h.calls["waits"].cancel()
		synctest.Wait()
		wants(t, h.calls["waits"].err, context.Canceled)
		if errors.Is(h.calls["waits"].err, queue.ErrUnknownOutcome) {
			t.Errorf("%v, but nothing was sent", h.calls["waits"].err)
		}
		h.calls["sent"].cancel() // the others leave
		synctest.Wait()
		wants(t, h.calls["sent"].err, queue.ErrUnknownOutcome, context.Canceled)
		h.calls["after"].cancel()
		synctest.Wait()
		wants(t, h.calls["after"].err, queue.ErrUnknownOutcome, context.Canceled)
		for _, id := range []string{"sent", "waits", "after"} {
			equal(t, "receipt", h.calls[id].receipt, queue.Receipt{ID: id})
		}
		h.open(nil, nil)
		h.want(t, "before", queue.Added)
		equal(t, "sizes", h.sizes(), []int{1, 2})
		equal(t, "there", h.there(t), []string{"after", "before", "sent"})
	})
}

// there lists the IDs in the queue.
func (h *hall) there(t *testing.T) []string {
	t.Helper()
	ids, err := h.rdb.HKeys(t.Context(), "duly:{q}:task").Result()
	must(t, err)
	slices.Sort(ids)
	return ids
}

// A reply that never comes must not hold up those that come later, once nobody
// waits for it any more.
func TestACallThatEverybodyGaveUpFreesTheWay(t *testing.T) {
	inHall(t, func(t *testing.T, h *hall) {
		h.call(t, "hangs", "hangs")
		h.call(t, "waits", "waits")
		h.call(t, "next", "next")
		h.calls["waits"].cancel()
		synctest.Wait()
		h.calls["hangs"].cancel()
		synctest.Wait()
		equal(t, "sizes", h.sizes(), []int{1, 1})
		h.open(nil) // the first comes back
		h.call(t, "later", "later")
		equal(t, "sizes while one is on its way", h.sizes(), []int{1, 1})
		h.open(nil, nil)
		h.want(t, "next", queue.Added)
		h.want(t, "later", queue.Added)
	})
}

func TestNothingIsSentForThoseThatGaveUpWaiting(t *testing.T) {
	inHall(t, func(t *testing.T, h *hall) {
		h.call(t, "sent", "sent")
		h.call(t, "waits", "waits")
		h.calls["waits"].cancel()
		synctest.Wait()
		h.open(nil)
		h.call(t, "again", "again")
		h.open(nil)
		h.want(t, "again", queue.Added)
		equal(t, "sizes", h.sizes(), []int{1, 1})
	})
}

func TestAnEndedContextSendsNothing(t *testing.T) {
	inHall(t, func(t *testing.T, h *hall) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := h.q.Enqueue(ctx, task("x"))
		wants(t, err, context.Canceled)
		synctest.Wait()
		equal(t, "sizes", len(h.sizes()), 0)
	})
}

func TestALostReplyIsToldToEachThatSharedIt(t *testing.T) {
	inHall(t, func(t *testing.T, h *hall) {
		h.call(t, "first", "first")
		for _, id := range []string{"a", "b"} {
			h.call(t, id, id)
		}
		h.open(nil, errors.New("read: connection reset"))
		h.want(t, "first", queue.Added)
		for _, id := range []string{"a", "b"} {
			wants(t, h.calls[id].err, queue.ErrUnknownOutcome)
			equal(t, "receipt", h.calls[id].receipt, queue.Receipt{ID: id})
		}
		h.call(t, "again", "a")
		h.open(nil)
		h.want(t, "again", queue.Kept)
	})
}

// A connection may be dead: whoever does not share it waits 100 ms at most.
func TestATripThatDoesNotComeBackHoldsNobodyUpForLong(t *testing.T) {
	inHall(t, func(t *testing.T, h *hall) {
		h.call(t, "hangs", "hangs")
		h.call(t, "waits", "waits")
		time.Sleep(99 * time.Millisecond)
		synctest.Wait()
		equal(t, "sizes", h.sizes(), []int{1})
		time.Sleep(time.Millisecond)
		synctest.Wait() // the others leave
		h.call(t, "late", "late")
		equal(t, "sizes", h.sizes(), []int{1, 1})
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		equal(t, "sizes", h.sizes(), []int{1, 1, 1})
		h.open(nil, nil, nil)
		for _, name := range []string{"hangs", "waits", "late"} {
			h.want(t, name, queue.Added)
		}
	})
}

// A refusal is Redis's own answer.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

func TestWhatWasRefusedTogetherIsSentAloneAsLongAsRedisAnswers(t *testing.T) {
	inHall(t, func(t *testing.T, h *hall) {
		oom := refusal("OOM command not allowed when used memory > 'maxmemory'.")
		h.call(t, "first", "first")
		for _, id := range []string{"a", "b", "c", "d"} {
			h.call(t, id, id)
		}
		h.open(nil, oom, nil, oom, errors.New("read: connection reset"))
		equal(t, "sizes", h.sizes(), []int{1, 4, 1, 1, 1})
		h.want(t, "first", queue.Added)
		h.want(t, "a", queue.Kept) // the gate refuses what has been done
		wants(t, h.calls["b"].err, queue.ErrFull)
		wants(t, h.calls["c"].err, queue.ErrUnknownOutcome)
		wants(t, h.calls["d"].err, queue.ErrFull)
	})
}

func TestNothingMoreIsSentForThoseThatGaveUpARefusal(t *testing.T) {
	inHall(t, func(t *testing.T, h *hall) {
		h.call(t, "first", "first")
		h.call(t, "a", "a")
		h.call(t, "b", "b")
		h.open(nil, refusal("OOM command not allowed"))
		equal(t, "sizes", h.sizes(), []int{1, 2, 1})
		h.calls["a"].cancel()
		synctest.Wait()
		h.calls["b"].cancel()
		synctest.Wait()
		h.open(nil)
		equal(t, "sizes", h.sizes(), []int{1, 2, 1})
		h.call(t, "next", "next")
		h.open(nil)
		h.want(t, "next", queue.Added)
	})
}

// Redis refuses a script whole: what adds nothing must not be refused for what
// shares its round trip.
func TestAFullRedisRefusesOnlyThoseOfSharedEnqueuesThatAdd(t *testing.T) {
	t.Parallel()
	r, _ := onOwnRedis(t)
	r.enqueue(t, "there")
	r.fill(t)
	hold := make(chan struct{})
	r.link.onReply(func() error { <-hold; return nil })
	var wg sync.WaitGroup
	defer wg.Wait()
	sent := r.link.scripts.Load()
	for i := range 20 {
		wg.Go(func() {
			receipt, err := r.q.Enqueue(t.Context(), duly.Task{ID: fmt.Sprint("new", i), Kind: "k"})
			if !errors.Is(err, queue.ErrFull) {
				t.Errorf("a new task: %+v, %v", receipt, err)
			}
		})
		wg.Go(func() {
			receipt, err := r.q.Enqueue(t.Context(), task("there"))
			if err != nil || receipt.Outcome != queue.Kept {
				t.Errorf("a task that is there: %+v, %v", receipt, err)
			}
		})
	}
	for r.link.scripts.Load() == sent {
		time.Sleep(time.Millisecond)
	}
	close(hold)
}
