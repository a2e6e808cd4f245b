package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/queue"
)

// A stage is a queue of one trial, seen through the client on trial and through one
// that no fault reaches.
type stage struct {
	q, clean *queue.Queue
	keyed    bool // its tasks have a lock key

	ds    []*duly.Delivery
	due   time.Time
	lease *lock.Lease
	mu    sync.Mutex // guards lease
	ends  sync.Once
}

// thing is the lock that a stage has.
const thing = "thing"

func (s *stage) task(id string) duly.Task {
	task := duly.Task{ID: id, Kind: "quick", Payload: []byte("payload of " + id), Retain: time.Hour}
	if s.keyed {
		task.LockKey = thing
	}
	return task
}

// A verb is one that is tried while a fault is there: how its stage is set, and how
// it is called.
type verb struct {
	name string
	set  func(ctx context.Context, s *stage) error
	call func(ctx context.Context, s *stage) (answer string, err error)

	same    bool          // the repetition of an unknown call answers what that would have
	counts  bool          // a repetition is counted
	reads   bool          // what is in Redis is not compared
	acquire bool          // it leaves a lock behind that is released in the background
	grace   time.Duration // it outlives its context by this
}

func bare(context.Context, *stage) error { return nil }

func ready(ctx context.Context, s *stage) error {
	return several(ctx, s, queue.In(0), s.task("a"), duly.Task{ID: "b", Kind: "quick"}, duly.Task{ID: "c", Kind: "quick"})
}

func several(ctx context.Context, s *stage, when queue.EnqueueOption, tasks ...duly.Task) error {
	for _, task := range tasks {
		receipt, err := s.clean.Enqueue(ctx, task, when)
		if err != nil {
			return err
		}
		s.due = receipt.Due
	}
	return nil
}

func due(ctx context.Context, s *stage) error {
	return several(ctx, s, queue.In(time.Hour), s.task("a"))
}

func leased(ctx context.Context, s *stage) (err error) {
	if err = several(ctx, s, queue.In(0), s.task("a")); err == nil {
		s.ds, _, err = s.clean.Pop(ctx, 1, time.Hour)
	}
	if err == nil && len(s.ds) != 1 {
		err = fmt.Errorf("%d popped", len(s.ds))
	}
	return err
}

func endedBy(action duly.Action) func(ctx context.Context, s *stage) error {
	return func(ctx context.Context, s *stage) error {
		err := leased(ctx, s)
		if err == nil {
			_, err = settle(ctx, s, s.clean, action)
		}
		return err
	}
}

func settle(ctx context.Context, s *stage, q *queue.Queue, action duly.Action) (string, error) {
	end := duly.Settlement{Delivery: s.ds[0], Action: action}
	switch action {
	case duly.Acked:
		end.Result = []byte(`{"well":true}`)
	case duly.Retried, duly.Buried:
		end.Err, end.In = errors.New("as planned"), 3*time.Hour
	case duly.Released:
		end.In = 3 * time.Hour
	case duly.Repeated:
		end.At = time.Now().Add(3 * time.Hour)
	}
	lost, err := q.Settle(ctx, []duly.Settlement{end})
	return fmt.Sprint(len(lost), " lost"), err
}

func settling(action duly.Action) func(context.Context, *stage) (string, error) {
	return func(ctx context.Context, s *stage) (string, error) { return settle(ctx, s, s.q, action) }
}

func waiting(ctx context.Context, s *stage) (string, error) {
	ended, err := s.q.Wait(ctx, "a")
	if errors.Is(err, duly.ErrNotFound) {
		return "not found", nil
	}
	return fmt.Sprintf("%s %s %v", ended.Action, ended.Result, ended.Err), err
}

// got makes an answer of what a lock's verb has returned: that another holds a lock
// is an answer.
func (s *stage) got(l *lock.Lease, err error) (string, error) {
	switch {
	case err == nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.lease = l
		return "acquired", nil
	case errors.Is(err, lock.ErrHeld) && !errors.Is(err, context.DeadlineExceeded):
		return "held", nil
	case errors.Is(err, lock.ErrExpired), errors.Is(err, lock.ErrLost):
		return "ended", nil
	}
	return "", err
}

func held(ctx context.Context, s *stage) (err error) {
	s.lease, err = s.q.Locker().TryAcquire(ctx, thing, time.Hour)
	return err
}

// verbs are all of the queue and of the lock.
var verbs = []verb{
	{name: "enqueue", set: bare, call: func(ctx context.Context, s *stage) (string, error) {
		receipt, err := s.q.Enqueue(ctx, s.task("a"), queue.In(2*time.Hour))
		return fmt.Sprint(receipt.Outcome, receipt.State), err
	}},
	{name: "enqueue, replace", set: due, counts: true, call: func(ctx context.Context, s *stage) (string, error) {
		task := s.task("a")
		task.Payload = []byte("another")
		receipt, err := s.q.Enqueue(ctx, task, queue.In(2*time.Hour), queue.OnConflict(queue.Replace))
		return fmt.Sprint(receipt.Outcome, receipt.State), err
	}},
	{name: "enqueue many", set: due, call: func(ctx context.Context, s *stage) (string, error) {
		receipts, err := s.q.EnqueueMany(ctx, []duly.Task{s.task("a"), s.task("b"), s.task("c")}, queue.In(2*time.Hour))
		var answer strings.Builder
		for _, receipt := range receipts {
			fmt.Fprint(&answer, receipt.ID, receipt.Outcome, receipt.State, " ")
		}
		return answer.String(), err
	}},
	{name: "pop", set: ready, same: true, call: func(ctx context.Context, s *stage) (string, error) {
		ds, _, err := s.q.Pop(ctx, 2, time.Hour)
		var answer strings.Builder
		for _, d := range ds {
			fmt.Fprintf(&answer, "%s %s %d %d ", d.ID, d.Payload, d.Attempt, d.Crashes)
		}
		return answer.String(), err
	}},
	{name: "ack", set: leased, call: settling(duly.Acked)},
	{name: "retry", set: leased, call: settling(duly.Retried)},
	{name: "bury", set: leased, call: settling(duly.Buried)},
	{name: "drop", set: leased, call: settling(duly.Dropped)},
	{name: "release", set: leased, call: settling(duly.Released)},
	{name: "repeat", set: leased, call: settling(duly.Repeated)},
	{name: "extend", set: leased, call: func(ctx context.Context, s *stage) (string, error) {
		lost, cancelled, err := s.q.Extend(ctx, s.ds, 3*time.Hour)
		return fmt.Sprint(len(lost), len(cancelled)), err
	}},
	{name: "cancel", set: due, call: func(ctx context.Context, s *stage) (string, error) {
		state, err := s.q.Cancel(ctx, "a")
		return string(state), err
	}},
	{name: "cancel running", set: leased, call: func(ctx context.Context, s *stage) (string, error) {
		state, err := s.q.CancelRunning(ctx, "a")
		return string(state), err
	}},
	{name: "remove", set: due, call: func(ctx context.Context, s *stage) (string, error) {
		removed, err := s.q.Remove(ctx, "a", s.due)
		return fmt.Sprint(removed), err
	}},
	{name: "reschedule", set: due, call: func(ctx context.Context, s *stage) (string, error) {
		state, err := s.q.Reschedule(ctx, "a", queue.In(5*time.Hour))
		return string(state), err
	}},
	{name: "recur", set: bare, call: func(ctx context.Context, s *stage) (string, error) {
		task := duly.Task{ID: "r", Kind: "quick", Every: "@every 10m"}
		at, err := s.q.Recur(ctx, task, func(now time.Time) time.Time { return now.Add(3 * time.Hour) })
		return fmt.Sprint(at.IsZero()), err
	}},
	{name: "get", set: due, call: func(ctx context.Context, s *stage) (string, error) {
		info, err := s.q.Get(ctx, "a")
		return fmt.Sprintf("%s %s", info.State, info.Payload), err
	}},
	{name: "list", set: endedBy(duly.Buried), call: func(ctx context.Context, s *stage) (string, error) {
		infos, err := s.q.List(ctx, queue.Dead, 0, 10)
		var answer strings.Builder
		for _, info := range infos {
			fmt.Fprintf(&answer, "%s %s %s ", info.ID, info.State, info.LastError)
		}
		return answer.String(), err
	}},
	{name: "stats", set: leased, call: func(ctx context.Context, s *stage) (string, error) {
		stats, err := s.q.Stats(ctx)
		return fmt.Sprint(stats.Due, stats.Leased, stats.Counters), err
	}},
	{name: "revive", set: endedBy(duly.Buried), call: func(ctx context.Context, s *stage) (string, error) {
		n, err := s.q.Revive(ctx, "a")
		return fmt.Sprint(n), err
	}},
	{name: "purge", set: endedBy(duly.Buried), call: func(ctx context.Context, s *stage) (string, error) {
		n, err := s.q.Purge(ctx, 0)
		return fmt.Sprint(n), err
	}},
	{name: "progress", set: leased, call: func(ctx context.Context, s *stage) (string, error) {
		err := s.q.Progress(ctx, s.ds[0], []byte("50"))
		if errors.Is(err, duly.ErrLeaseLost) {
			return "lost", nil
		}
		return "kept", err
	}},
	{name: "wait for what is done", set: endedBy(duly.Acked), reads: true, call: waiting},
	{name: "wait", set: leased, reads: true, call: func(ctx context.Context, s *stage) (string, error) {
		s.ends.Do(func() {
			go func() {
				time.Sleep(20 * time.Millisecond)
				_, _ = settle(context.WithoutCancel(ctx), s, s.clean, duly.Acked)
			}()
		})
		return waiting(ctx, s)
	}},
	{name: "pause", set: bare, call: func(ctx context.Context, s *stage) (string, error) { return "", s.q.Pause(ctx) }},
	{
		name: "resume", set: func(ctx context.Context, s *stage) error { return s.clean.Pause(ctx) },
		call: func(ctx context.Context, s *stage) (string, error) { return "", s.q.Resume(ctx) },
	},
	{name: "set limits", set: bare, call: func(ctx context.Context, s *stage) (string, error) {
		return "", s.q.SetLimits(ctx, queue.Limits{Running: 7, Rate: 100})
	}},
	{
		name: "limits", set: func(ctx context.Context, s *stage) error { return s.clean.SetLimits(ctx, queue.Limits{Running: 7}) },
		call: func(ctx context.Context, s *stage) (string, error) {
			l, err := s.q.Limits(ctx)
			return fmt.Sprint(l), err
		},
	},
	{name: "try acquire", set: bare, acquire: true, same: true, call: func(ctx context.Context, s *stage) (string, error) {
		return s.got(s.q.Locker().TryAcquire(ctx, thing, time.Hour))
	}},
	{name: "acquire", set: bare, acquire: true, same: true, call: func(ctx context.Context, s *stage) (string, error) {
		return s.got(s.q.Locker().Acquire(ctx, thing, time.Hour))
	}},
	{name: "acquire what is held", acquire: true, same: true, set: func(ctx context.Context, s *stage) (err error) {
		s.lease, err = s.clean.Locker().TryAcquire(ctx, thing, time.Hour)
		return err
	}, call: func(ctx context.Context, s *stage) (string, error) {
		s.ends.Do(func() {
			other := s.lease
			go func() {
				time.Sleep(20 * time.Millisecond)
				_ = other.Release(context.WithoutCancel(ctx))
			}()
		})
		return s.got(s.q.Locker().Acquire(ctx, thing, time.Hour))
	}},
	{name: "extend a lock", set: held, same: true, call: func(ctx context.Context, s *stage) (string, error) {
		return s.got(s.lease, s.lease.Extend(ctx, 3*time.Hour))
	}},
	{name: "release a lock", set: held, same: true, grace: time.Second, call: func(ctx context.Context, s *stage) (string, error) {
		return s.got(s.lease, s.lease.Release(ctx))
	}},
}

// inRedis is what Redis holds of a stage. Times are told in hours from now.
const inRedis = `
local all, now = {}, redis.call('TIME')[1] * 1000000
local function hours(text)
  return (string.gsub(text, '%d+', function(n)
    return #n == 16 and string.format('%+dh', math.floor((n - now) / 3600e6 + 0.5)) or n
  end))
end
for _, name in ipairs({'due', 'leased', 'parked', 'turns', 'blocked', 'dead', 'done', 'task', 'next', 'fail', 'crash',
  'cancel', 'result', 'progress', 'lock', 'lock:thing', 'conf', 'stat'}) do
  local key = KEYS[1] .. name
  local type, parts = redis.call('TYPE', key).ok, {}
  if type == 'hash' then
    local list = redis.call('HGETALL', key)
    for i = 1, #list, 2 do parts[#parts + 1] = list[i] .. '=' .. hours(list[i + 1]) end
  elseif type == 'zset' then
    local list = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for i = 1, #list, 2 do parts[#parts + 1] = hours(list[i]) .. '=' .. hours(list[i + 1]) end
  elseif type == 'string' then
    local held = string.gsub(redis.call('GET', key), '#.*', '')
    parts = {hours(held), math.floor(redis.call('PTTL', key) / 3600e3 + 0.5) .. 'h'}
  end
  table.sort(parts)
  if #parts > 0 then all[#all + 1] = name .. ' ' .. table.concat(parts, ' ') end
end
return table.concat(all, '; ')`
