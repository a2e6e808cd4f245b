package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/dulyhq/duly"
)

// A Recurrer is a Source that takes recurring tasks, as a *queue.Queue does. Both
// methods are called concurrently.
type Recurrer interface {
	// CheckTask reports why the source would not take a task.
	CheckTask(task duly.Task) error

	// Recur makes sure that a recurring task is there: it adds the task, due at
	// what first returns for the source's now, or puts it in the place of one that
	// differs in more than its due time. It returns when the task is due next,
	// zero if it runs. An error matches [duly.ErrDead] if the same task is there
	// and dead. Repeating it is harmless.
	Recur(ctx context.Context, task duly.Task, first func(now time.Time) time.Time) (due time.Time, err error)
}

// A Recurring is a task that a worker keeps in one of its sources, to be run again
// and again. [Every] makes one.
type Recurring struct {
	task   duly.Task
	source string
}

// Every makes a task recur by a schedule, of which the package comment tells. The
// task needs an ID, as its Kind derives it, and may have a Grace, which is a field of
// the task; its Expires, if it has one, ends it for good. It lives in the
// first source of the worker, unless [Within] names another. What is wrong with
// it is reported by Run.
func Every(schedule string, task duly.Task, opts ...RecurringOption) Recurring {
	task.Every = schedule
	r := Recurring{task: task}
	for _, opt := range opts {
		opt(&r)
	}
	return r
}

// A RecurringOption says more of a recurring task.
type RecurringOption func(*Recurring)

// Within names the source that a recurring task lives in. Default: the first.
func Within(source string) RecurringOption {
	return func(r *Recurring) { r.source = source }
}

// A registrar sees to it that one recurring task is in its source.
type registrar struct {
	source Recurrer
	name   string // of the source
	task   duly.Task
	log    *zap.Logger
}

// registrars checks the recurring tasks of a Config, whose sources have been.
func (c *Config) registrars(sources []Source) ([]registrar, error) {
	all := make([]registrar, len(c.Recurring))
	seen := make(map[[2]string]bool)
	for i := range c.Recurring {
		r := &all[i]
		task, source := c.Recurring[i].task, c.Recurring[i].source
		r.name, r.task = cmp.Or(source, sources[0].Name()), task
		if err := r.find(sources); err != nil {
			return nil, fmt.Errorf("%w: recurring task %.512q of kind %q in %q: %w", ErrInvalid, task.ID, task.Kind, r.name, err)
		}
		if seen[[2]string{r.name, task.ID}] {
			return nil, fmt.Errorf("%w: two recurring tasks %.512q in %q", ErrInvalid, task.ID, r.name)
		}
		seen[[2]string{r.name, task.ID}] = true
		r.log = c.Logger.With(zap.String("queue", r.name), zap.String("kind", task.Kind),
			zap.String("id", task.ID), zap.String("every", task.Every))
	}
	return all, nil
}

// find finds the source, and says what is wrong with the task.
func (r *registrar) find(sources []Source) error {
	i := slices.IndexFunc(sources, func(s Source) bool { return s.Name() == r.name })
	if i < 0 {
		return errors.New("there is no such source")
	}
	var ok bool
	if r.source, ok = sources[i].(Recurrer); !ok {
		return errors.New("the source is no Recurrer")
	}
	if r.task.Every == "" {
		return errors.New("it was not made by Every")
	}
	if r.task.ID == "" && r.task.Err() == nil {
		return errors.New("it is without an ID: set its Kind's ID")
	}
	if _, err := NextTick(r.task.Every, time.Now()); err != nil {
		return err
	}
	return r.source.CheckTask(r.task)
}

// run tries until it is told, or ctx ends.
func (r *registrar) run(ctx context.Context) {
	var failing pause
	for ctx.Err() == nil {
		due, err := r.register(ctx)
		switch {
		case err == nil:
			r.log.Info("task recurs", zap.Time("due", due))
			return
		case errors.Is(err, duly.ErrDead):
			r.log.Error("recurring task is dead: it does not run until it is revived or changed")
			return
		case failing.failures == 0 && ctx.Err() == nil:
			r.log.Warn("recurring task is not yet sure to be there, trying on", zap.Error(err))
		}
		failing.wait(ctx)
	}
}

func (r *registrar) register(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, callMost)
	defer cancel()
	return r.source.Recur(ctx, r.task, func(now time.Time) time.Time {
		first, err := NextTick(r.task.Every, now)
		if err != nil {
			return now // by a clock that is years from ours: its first run will tell
		}
		return first
	})
}
