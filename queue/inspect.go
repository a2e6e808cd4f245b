package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dulyhq/duly"
)

// An Info shows a task as it stands in the queue.
type Info struct {
	duly.Task

	// State is Due, Parked, Leased, Dead or Done; Missing if there is no such task.
	State State

	// At is when a due or parked task may run, when a leased one's lease ends, when a
	// dead one died, or when a done one is forgotten, by the server's clock. Get leaves
	// it zero for a leased task, which it cannot find without a search.
	At time.Time

	// Failures counts the attempts that failed, LastError is the last one's
	// error, and Crashes the leases in a row that ran out.
	Failures  int
	LastError string
	Crashes   int

	// Replacement is when the task is due that will take this leased one's
	// place; zero if there is none.
	Replacement time.Time

	// Result is what a done task has brought, Progress what a handler reported last,
	// both JSON; nil without.
	Result, Progress []byte

	// Raw holds the stored bytes of a record that does not decode, and Corrupt
	// says why.
	Raw     []byte
	Corrupt error
}

// Get shows the task of an ID. That there is none is an Info with the state
// Missing, not an error.
func (q *Queue) Get(ctx context.Context, id string) (Info, error) {
	if err := checkText("task ID", id, MaxID); err != nil {
		return Info{}, fmt.Errorf("queue: get from %q: %w", q.name, err)
	}
	got, err := q.run(ctx, getScript, q.keys.forGet(), id)
	if err != nil {
		return Info{}, fmt.Errorf("queue: get %q from %q: %w", id, q.name, err)
	}
	list, _ := got.([]any)
	answer := reply(list)
	if answer.text(0) == string(Missing) {
		return Info{Task: duly.Task{ID: id}, State: Missing}, nil
	}
	info := newInfo(id, answer.text(2), answer.text(3), answer.text(4))
	info.State, info.At = State(answer.text(0)), microTime(answer.text(1))
	due, _, _ := strings.Cut(answer.text(5), ":")
	info.Replacement = microTime(due)
	info.Result, info.Progress = report(answer, 6), report(answer, 7)
	return info, nil
}

// Peek shows the first n tasks that are due or will be, the next to be popped
// first, without taking them. n is 1 to 1,000.
func (q *Queue) Peek(ctx context.Context, n int) ([]Info, error) {
	return q.List(ctx, Due, 0, n)
}

// List shows tasks of a state by their At, the earliest first: limit of them, 1
// to 1,000, after leaving out offset. Between two pages tasks may come and go.
func (q *Queue) List(ctx context.Context, state State, offset, limit int) ([]Info, error) {
	infos, err := q.list(ctx, state, offset, limit)
	if err != nil {
		return nil, fmt.Errorf("queue: list %s of %q: %w", state, q.name, err)
	}
	return infos, nil
}

func (q *Queue) list(ctx context.Context, state State, offset, limit int) ([]Info, error) {
	switch {
	case state != Due && state != Parked && state != Leased && state != Dead && state != Done:
		return nil, fmt.Errorf("%w: state %q", ErrInvalid, state)
	case offset < 0:
		return nil, fmt.Errorf("%w: offset %d is negative", ErrInvalid, offset)
	case limit < 1 || limit > MaxPage:
		return nil, fmt.Errorf("%w: limit %d is not between 1 and %d", ErrInvalid, limit, MaxPage)
	}
	got, err := q.run(ctx, listScript, q.keys.forList(state), offset, offset+limit-1, string(state))
	if err != nil {
		return nil, err
	}
	list, _ := got.([]any)
	answer := reply(list)
	page, records, failures, crashes := answer.list(0), answer.list(1), answer.list(2), answer.list(3)
	infos := make([]Info, 0, len(records))
	for i := range records {
		id := page.text(2 * i)
		if state == Leased {
			_, id = parts(id)
		}
		info := newInfo(id, records.text(i), failures.text(i), crashes.text(i))
		info.State, info.At = state, microTime(page.text(2*i+1))
		info.Result, info.Progress = report(answer.list(4), i), report(answer.list(5), i)
		infos = append(infos, info)
	}
	return infos, nil
}

// report is the JSON at a position, or nil.
func report(answer reply, i int) []byte {
	if text := answer.text(i); text != "" {
		return []byte(text)
	}
	return nil
}

func newInfo(id, stored, failure, crashes string) Info {
	var info Info
	info.Task, info.Corrupt = decodeRecord(id, stored)
	if info.Corrupt != nil {
		info.Raw = []byte(stored)
	}
	info.Failures, info.LastError = decodeFailure(failure)
	info.Crashes, _ = strconv.Atoi(crashes)
	return info
}

// Stats counts the tasks of a queue.
type Stats struct {
	// Now is the server's clock when it counted.
	Now time.Time

	// Due counts the tasks that wait; Ready those of them that could run now, and
	// Parked those that could but for their lock keys.
	Due, Ready, Parked int

	// Leased, Dead and Done count the tasks handed out, in the dead letter, and kept
	// though they are done.
	Leased, Dead, Done int

	// Lateness is how long the earliest due task has been ready.
	Lateness time.Duration

	// Paused, and Locked by a job that holds the queue's lock: no pops.
	Paused, Locked bool

	// Limits are those that apply.
	Limits Limits

	// Counters of what has happened since the queue was first used, by name:
	// enqueued, ack, drop, retry, release, repeat, bury (by handlers), buried
	// (without one), reclaimed, cancelled, revived, purged.
	Counters map[string]int64
}

// Stats counts the queue's tasks. It is cheap: O(log n).
func (q *Queue) Stats(ctx context.Context) (Stats, error) {
	got, err := q.run(ctx, statsScript, q.keys.forStats())
	if err != nil {
		return Stats{}, fmt.Errorf("queue: stats of %q: %w", q.name, err)
	}
	list, _ := got.([]any)
	answer := reply(list)
	s := Stats{
		Now: microTime(answer.text(0)),
		Due: int(answer.number(1) + answer.number(9)), Ready: int(answer.number(2)), Parked: int(answer.number(9)),
		Leased: int(answer.number(3)), Dead: int(answer.number(4)), Done: int(answer.number(10)),
		Paused: answer.list(6).at(0) != nil, Locked: answer.number(7) == 1,
		Limits:   readLimits(answer.list(6)),
		Counters: make(map[string]int64),
	}
	if first := microTime(answer.text(5)); !first.IsZero() {
		s.Lateness = max(s.Now.Sub(first), 0)
	}
	counters := answer.list(8)
	for i := 0; i+1 < len(counters); i += 2 {
		n, err := strconv.ParseInt(counters.text(i+1), 10, 64)
		if !errors.Is(err, strconv.ErrSyntax) {
			s.Counters[counters.text(i)] = n
		}
	}
	return s, nil
}
