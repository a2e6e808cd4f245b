package duly

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// A Kind declares a kind of task once for producers and workers: its name, the
// type of its arguments, and what follows from them. Every field but Name may
// be left out. Arguments travel as JSON.
type Kind[T any] struct {
	// Name is the task's Kind. Required.
	Name string

	// ID derives the task's business key. Default: every task is a new one.
	ID func(T) string

	// LockKey derives what the task works on, and is not to share with another.
	// Default: none.
	LockKey func(T) string

	// MaxAttempts and Timeout are the task's.
	MaxAttempts int
	Timeout     time.Duration

	// Retain is the task's.
	Retain time.Duration

	// Expires derives when the task becomes useless; OnExpiry is the task's.
	// Default: never.
	Expires  func(T) time.Time
	OnExpiry Action
}

// Task makes a task of this kind. An argument that cannot be encoded, or an ID
// function that yields nothing, is reported by the task's Err and so by the
// queue that is asked to take it.
func (k Kind[T]) Task(args T) Task {
	t := Task{Kind: k.Name, MaxAttempts: k.MaxAttempts, Timeout: k.Timeout, OnExpiry: k.OnExpiry, Retain: k.Retain}
	t.Payload, t.err = json.Marshal(args)
	if t.err != nil {
		t.err = fmt.Errorf("duly: arguments of kind %q: %w", k.Name, t.err)
		return t
	}
	if k.ID != nil {
		if t.ID = k.ID(args); t.ID == "" {
			t.err = fmt.Errorf("duly: kind %q: its ID function returned no ID", k.Name)
		}
	}
	if k.LockKey != nil {
		t.LockKey = k.LockKey(args)
	}
	if k.Expires != nil {
		t.Expires = k.Expires(args)
	}
	return t
}

// Handle registers f for this kind on mux. A payload that does not decode to T
// is buried, for a retry cannot mend it. Like [Mux.Handle] it panics if the
// name is empty or taken.
func (k Kind[T]) Handle(mux *Mux, f func(ctx context.Context, args T, d *Delivery) error) {
	mux.HandleFunc(k.Name, func(ctx context.Context, d *Delivery) error {
		var args T
		if err := json.Unmarshal(d.Payload, &args); err != nil {
			return Bury(fmt.Errorf("duly: payload of kind %q: %w", k.Name, err))
		}
		return f(ctx, args, d)
	})
}
