package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dulyhq/duly"
)

// Settle ends deliveries: each as its Action says, 500 a round trip. It
// returns the deliveries whose lease is no longer held; for these nothing has
// changed. After an error it is not known of the others whether they have been
// settled, unless the error shows that Redis refused; settling again then
// reports those that were as lost.
//
// A task that was replaced while it ran is due again as its replacement,
// whatever the action. One whose run was cancelled, or that recurs and was
// cancelled meanwhile, is gone, unless it was replaced since.
func (q *Queue) Settle(ctx context.Context, settlements []duly.Settlement) (lost []*duly.Delivery, err error) {
	for i := range settlements {
		if err := checkSettlement(&settlements[i]); err != nil {
			return nil, fmt.Errorf("queue: settle in %q: %w", q.name, err)
		}
	}
	for part := range slices.Chunk(settlements, MaxBatch) {
		gone, err := q.settle(ctx, part)
		if err != nil {
			return lost, fmt.Errorf("queue: settle in %q: %w", q.name, err)
		}
		lost = append(lost, gone...)
	}
	return lost, nil
}

// settle settles a batch. What is acknowledged, and has neither a lock key nor a
// result, and is not kept, takes one argument.
func (q *Queue) settle(ctx context.Context, part []duly.Settlement) (lost []*duly.Delivery, err error) {
	args := make([]any, 0, 2+len(part))
	args = append(args, len(part))
	delivery := func(i int) *duly.Delivery { return part[i].Delivery }
	leases := members(len(part), delivery)
	for i := range leases {
		args = append(args, leases[i])
	}
	for i := range part {
		switch s := &part[i]; {
		case s.Action != duly.Acked:
			args = append(args, i+1, string(s.Action), dueAgain(s), note(s))
		case s.Delivery.LockKey != "" || s.Delivery.Retain > 0 || len(s.Result) > 0:
			args = append(args, i+1, string(s.Action), s.Delivery.Retain.Microseconds(), s.Result)
		}
	}
	if terms := q.termsFor(len(part), delivery); terms != "" {
		args = append(args, terms)
	}
	got, err := q.run(ctx, settleScript, q.keys.forSettle(), args...)
	for _, i := range positions(got) {
		lost = append(lost, part[i].Delivery)
	}
	return lost, err
}

// Extend makes the leases of deliveries last for the given time from now, 500 a
// round trip. It returns the deliveries whose lease is no longer held, or whose lock
// key has been taken from them by force, and those that were cancelled. The leases of
// these are extended as well: while their handlers run nobody else may have the tasks.
// After an error the leases may or may not have been extended; to extend again
// is harmless.
func (q *Queue) Extend(ctx context.Context, deliveries []*duly.Delivery, lease time.Duration) (lost, cancelled []*duly.Delivery, err error) {
	err = checkLease(lease)
	if slices.Contains(deliveries, nil) {
		err = fmt.Errorf("%w: nil delivery", ErrInvalid)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("queue: extend in %q: %w", q.name, err)
	}
	for part := range slices.Chunk(deliveries, MaxBatch) {
		args := make([]any, 0, 2+len(part))
		delivery := func(i int) *duly.Delivery { return part[i] }
		args = append(args, lease.Microseconds(), q.termsFor(len(part), delivery))
		leases := members(len(part), delivery)
		for i := range leases {
			args = append(args, leases[i])
		}
		got, err := q.run(ctx, extendScript, q.keys.forExtend(), args...)
		if err != nil {
			return lost, cancelled, fmt.Errorf("queue: extend in %q: %w", q.name, err)
		}
		answer, _ := got.([]any)
		for _, i := range positions(reply(answer).at(0)) {
			lost = append(lost, part[i])
		}
		for _, i := range positions(reply(answer).at(1)) {
			cancelled = append(cancelled, part[i])
		}
	}
	return lost, cancelled, nil
}

// termsFor are the terms of the locks if one of n deliveries has a lock key.
func (q *Queue) termsFor(n int, delivery func(i int) *duly.Delivery) string {
	for i := range n {
		if delivery(i).LockKey != "" {
			return q.terms
		}
	}
	return ""
}

func checkSettlement(s *duly.Settlement) error {
	if s.Delivery == nil {
		return fmt.Errorf("%w: settlement without a delivery", ErrInvalid)
	}
	switch s.Action {
	case duly.Acked, duly.Dropped, duly.Retried, duly.Released, duly.Buried:
	case duly.Repeated:
		if at, err := moment(s.At); err != nil || at == 0 {
			return fmt.Errorf("%w: due again at %v", ErrInvalid, s.At)
		}
	default:
		return fmt.Errorf("%w: action %q", ErrInvalid, s.Action)
	}
	if s.In < 0 {
		return fmt.Errorf("%w: due again in %v", ErrInvalid, s.In)
	}
	if s.Action == duly.Acked || s.Action == duly.Repeated {
		if err := duly.CheckReport(s.Result); err != nil {
			return fmt.Errorf("result of %.512q: %w: %w", s.Delivery.ID, ErrInvalid, err)
		}
	}
	_, err := delay(s.In)
	return err
}

// dueAgain is when the task is due again, in µs: a delay, negated, or a time, such
// as the due time that a released task keeps.
func dueAgain(s *duly.Settlement) int64 {
	switch {
	case s.Action == duly.Repeated:
		return s.At.UnixMicro()
	case s.Action == duly.Released && s.In == 0:
		return s.Delivery.Due.UnixMicro()
	}
	return -s.In.Microseconds()
}

// note is what settling keeps of how a task fared: its failures, or = and the result
// of one that is repeated and was done.
func note(s *duly.Settlement) string {
	switch s.Action {
	case duly.Retried, duly.Buried:
		failures := s.Delivery.Attempt
		if errors.Is(s.Err, duly.ErrExpired) {
			failures-- // no attempt was made
		}
		return encodeFailure(failures, s.Err)
	case duly.Dropped:
		return encodeFailure(0, s.Err) // for those who wait
	case duly.Repeated:
		if s.Err == nil {
			return "=" + string(s.Result)
		}
		return encodeFailure(0, s.Err)
	}
	return ""
}

// positions reads a list of positions counted from 1.
func positions(got any) []int {
	list, _ := got.([]any)
	at := make([]int, 0, len(list))
	for i := range list {
		at = append(at, int(reply(list).number(i))-1)
	}
	return at
}
