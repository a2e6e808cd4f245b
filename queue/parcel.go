package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/dulyhq/duly"
)

// maxChunk bounds the bytes of records that one enqueue script carries, if it
// carries more than one task.
const maxChunk = 1 << 20

// A parcel is a task on its way to the script, and what became of it.
type parcel struct {
	id, record string
	when       int64 // see enqueueOptions
	conflict   Conflict

	receipt   Receipt // empty without an answer
	err       error
	abandoned bool // its caller has gone, and it was not sent
}

// pack checks and encodes tasks.
func (q *Queue) pack(tasks []duly.Task, o *enqueueOptions) ([]parcel, error) {
	parcels := make([]parcel, len(tasks))
	ends := make([]int, len(tasks))
	var r records
	for i := range tasks {
		t := &tasks[i]
		err := q.checkTask(t)
		if err == nil {
			err = r.add(t)
		}
		if err != nil {
			return nil, fmt.Errorf("queue: enqueue %.512q to %q: %w", t.ID, q.name, err)
		}
		parcels[i] = parcel{id: t.ID, when: o.when, conflict: o.conflict}
		if t.ID == "" {
			parcels[i].id = newID(time.Now())
		}
		ends[i] = r.buf.Len()
	}
	text, from := r.buf.String(), 0
	for i, end := range ends {
		parcels[i].record, from = text[from:end], end
	}
	return parcels, nil
}

// answer is the receipt, or one that tells the error.
func (p *parcel) answer() Receipt {
	switch {
	case p.err != nil:
		return Receipt{ID: p.id, Err: p.err}
	case p.receipt.Outcome == "":
		return Receipt{ID: p.id, Err: errNotSent}
	}
	return p.receipt
}

// A batch is what goes in one script: a bounded number of tasks and bytes, and
// no ID twice, for the script looks each up once.
type batch struct {
	parcels []*parcel
	bytes   int
	ids     map[string]struct{}
}

// newBatch returns a batch with room for n tasks, as far as one takes them.
func newBatch(n int) batch {
	n = min(n, MaxBatch)
	return batch{parcels: make([]*parcel, 0, n), ids: make(map[string]struct{}, n)}
}

// takes reports whether there is room for a parcel. An empty batch takes any.
func (b *batch) takes(p *parcel) bool {
	_, twice := b.ids[p.id]
	return len(b.parcels) == 0 || !twice && len(b.parcels) < MaxBatch && b.bytes+len(p.record) <= maxChunk
}

func (b *batch) add(p *parcel) {
	b.ids[p.id] = struct{}{}
	b.bytes += len(p.record)
	b.parcels = append(b.parcels, p)
}

// send runs the script on a batch. Each parcel then has its receipt or the
// error.
func (q *Queue) send(ctx context.Context, parcels []*parcel) error {
	groups := together(parcels)
	args := make([]any, 0, 3*len(groups)+2*len(parcels))
	for _, group := range groups {
		args = append(args, len(group), group[0].when, string(group[0].conflict))
		for _, p := range group {
			args = append(args, p.id, p.record)
		}
	}
	run := q.run
	if q.cfg.ReplicaAcks > 0 {
		run = q.runReplicated
	}
	got, err := run(ctx, enqueueScript, q.keys.forEnqueue(), args...)
	list, _ := got.([]any)
	answer := reply(list)
	if err == nil && len(answer.list(0)) != len(groups) {
		err = fmt.Errorf("unexpected reply %v", got)
	}
	for i, group := range groups {
		due := microTime(answer.list(0).text(i))
		for _, p := range group {
			if p.err = err; err == nil {
				p.receipt = Receipt{ID: p.id, Outcome: Added, State: Missing, Due: due}
			}
		}
	}
	for i := 1; i < len(answer); i++ {
		found := answer.list(i)
		if at := found.number(0); at >= 1 && at <= int64(len(parcels)) {
			r := &parcels[at-1].receipt
			r.Outcome, r.State, r.Due = Outcome(found.text(1)), State(found.text(2)), microTime(found.text(3))
		}
	}
	return err
}

// together splits parcels into neighbours that are due together.
func together(parcels []*parcel) [][]*parcel {
	var groups [][]*parcel
	first := 0
	for i, p := range parcels {
		if p.when != parcels[first].when || p.conflict != parcels[first].conflict {
			groups, first = append(groups, parcels[first:i]), i
		}
	}
	return append(groups, parcels[first:])
}
