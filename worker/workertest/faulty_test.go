package workertest_test

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker/workertest"
)

// A faulty is a source in memory of which a test replaces what it wants to be
// wrong.
type faulty struct {
	*workertest.Source
	pop    func(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error)
	extend func(ctx context.Context, ds []*duly.Delivery, lease time.Duration) (lost, cancelled []*duly.Delivery, err error)
	settle func(ctx context.Context, ss []duly.Settlement) ([]*duly.Delivery, error)
	watch  func(ctx context.Context, hint func(in time.Duration), cancel func(id string, fence uint64))
	recur  func(ctx context.Context, task duly.Task, first func(time.Time) time.Time) (time.Time, error)

	progress func(ctx context.Context, d *duly.Delivery, progress []byte) error
	mu       sync.Mutex // guards what follows
	newest   map[string]*duly.Delivery
	real     map[*duly.Delivery]*duly.Delivery // by what was handed out instead
}

func newFaulty() *faulty {
	src := workertest.NewSource("orders")
	return &faulty{
		Source: src, pop: src.Pop, extend: src.Extend, settle: src.Settle, watch: src.Watch,
		progress: src.Progress, recur: src.Recur,
		newest: make(map[string]*duly.Delivery), real: make(map[*duly.Delivery]*duly.Delivery),
	}
}

func (f *faulty) Pop(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
	ds, wait, err := f.pop(ctx, n, lease)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range ds {
		f.newest[d.ID] = d
	}
	return ds, wait, err
}

func (f *faulty) Extend(ctx context.Context, ds []*duly.Delivery, lease time.Duration) (lost, cancelled []*duly.Delivery, err error) {
	return f.extend(ctx, ds, lease)
}

func (f *faulty) Settle(ctx context.Context, ss []duly.Settlement) ([]*duly.Delivery, error) {
	return f.settle(ctx, ss)
}

func (f *faulty) Watch(ctx context.Context, hint func(in time.Duration), cancel func(id string, fence uint64)) {
	f.watch(ctx, hint, cancel)
}

func (f *faulty) Progress(ctx context.Context, d *duly.Delivery, progress []byte) error {
	return f.progress(ctx, d, progress)
}

func (f *faulty) Recur(ctx context.Context, task duly.Task, first func(time.Time) time.Time) (time.Time, error) {
	return f.recur(ctx, task, first)
}

// deliver changes deliveries on their way out, and back on their way in.
func (f *faulty) deliver(change func(d *duly.Delivery)) {
	pop := f.pop
	f.pop = func(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
		ds, wait, err := pop(ctx, n, lease)
		f.mu.Lock()
		defer f.mu.Unlock()
		for i, d := range ds {
			changed := *d
			change(&changed)
			ds[i] = &changed
			f.real[ds[i]] = d
		}
		return ds, wait, err
	}
	f.translate(func(d *duly.Delivery) *duly.Delivery { return f.real[d] })
}

// translate puts others in the place of deliveries that come in.
func (f *faulty) translate(instead func(*duly.Delivery) *duly.Delivery) {
	extend, settle := f.extend, f.settle
	of := func(ds []*duly.Delivery) (others []*duly.Delivery, back func([]*duly.Delivery) []*duly.Delivery) {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, d := range ds {
			others = append(others, instead(d))
		}
		return others, func(lost []*duly.Delivery) (ours []*duly.Delivery) {
			for _, d := range lost {
				ours = append(ours, ds[slices.Index(others, d)])
			}
			return ours
		}
	}
	f.extend = func(ctx context.Context, ds []*duly.Delivery, lease time.Duration) ([]*duly.Delivery, []*duly.Delivery, error) {
		others, back := of(ds)
		lost, cancelled, err := extend(ctx, others, lease)
		return back(lost), back(cancelled), err
	}
	f.settle = func(ctx context.Context, ss []duly.Settlement) ([]*duly.Delivery, error) {
		ds := make([]*duly.Delivery, len(ss))
		for i := range ss {
			ds[i] = ss[i].Delivery
		}
		others, back := of(ds)
		ss = slices.Clone(ss)
		for i := range ss {
			ss[i].Delivery = others[i]
		}
		lost, err := settle(ctx, ss)
		return back(lost), err
	}
}

// rewrite changes settlements on their way in.
func (f *faulty) rewrite(change func(how *duly.Settlement)) {
	settle := f.settle
	f.settle = func(ctx context.Context, ss []duly.Settlement) ([]*duly.Delivery, error) {
		ss = slices.Clone(ss)
		for i := range ss {
			change(&ss[i])
		}
		return settle(ctx, ss)
	}
}

// lost changes what is reported as lost.
func (f *faulty) lost(change func([]*duly.Delivery) []*duly.Delivery) {
	extend, settle := f.extend, f.settle
	f.extend = func(ctx context.Context, ds []*duly.Delivery, lease time.Duration) ([]*duly.Delivery, []*duly.Delivery, error) {
		lost, cancelled, err := extend(ctx, ds, lease)
		return change(lost), cancelled, err
	}
	f.settle = func(ctx context.Context, ss []duly.Settlement) ([]*duly.Delivery, error) {
		lost, err := settle(ctx, ss)
		return change(lost), err
	}
}

// waits changes the wait that a pop reports.
func (f *faulty) waits(change func(time.Duration) time.Duration) {
	pop := f.pop
	f.pop = func(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
		ds, wait, err := pop(ctx, n, lease)
		return ds, change(wait), err
	}
}

// leases changes how long a popped lease lasts.
func (f *faulty) leases(change func(time.Duration) time.Duration) {
	pop := f.pop
	f.pop = func(ctx context.Context, n int, lease time.Duration) ([]*duly.Delivery, time.Duration, error) {
		return pop(ctx, n, change(lease))
	}
}

// list is what stands in a state.
func (f *faulty) list(state workertest.State) []workertest.Info {
	infos, _ := f.List(context.Background(), state, 0, 1000)
	return infos
}
