package duly

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// ErrNoHandler is what a [Mux] answers for a kind that it does not know. A
// worker gives such a task back for later, without burning an attempt: during a
// rollout another worker may know it.
var ErrNoHandler = errors.New("duly: no handler for this kind")

// A Mux is a [Handler] that chooses among handlers by the task's kind.
//
// Registering is for the start of a program: Handle, HandleFunc and Use must
// not be called once HandleTask is. HandleTask may be called concurrently.
type Mux struct {
	handlers map[string]Handler
	before   []Middleware
	chain    Handler
}

// NewMux returns a mux that knows no kind.
func NewMux() *Mux {
	m := &Mux{handlers: make(map[string]Handler)}
	m.chain = HandlerFunc(m.route)
	return m
}

// Handle registers the handler of a kind. It panics, as a programmer's error,
// if kind is empty, h is nil, or the kind is registered already.
func (m *Mux) Handle(kind string, h Handler) {
	switch {
	case kind == "":
		panic("duly: Handle of an empty kind")
	case h == nil:
		panic(fmt.Sprintf("duly: nil handler for kind %q", kind))
	case m.handlers[kind] != nil:
		panic(fmt.Sprintf("duly: two handlers for kind %q", kind))
	}
	m.handlers[kind] = h
}

// HandleFunc registers f as the handler of a kind, as [Mux.Handle] does.
func (m *Mux) HandleFunc(kind string, f func(ctx context.Context, d *Delivery) error) {
	if f == nil {
		m.Handle(kind, nil) // panics with the kind's name
	}
	m.Handle(kind, HandlerFunc(f))
}

// Use wraps every handler of the mux, those of kinds yet to be registered
// included. What is used first is outermost.
func (m *Mux) Use(mw ...Middleware) {
	m.before = append(m.before, mw...)
	m.chain = HandlerFunc(m.route)
	for _, wrap := range slices.Backward(m.before) {
		m.chain = wrap(m.chain)
	}
}

// Kinds returns the registered kinds in alphabetical order.
func (m *Mux) Kinds() []string {
	kinds := make([]string, 0, len(m.handlers))
	for kind := range m.handlers {
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	return kinds
}

// HandleTask runs the handler of the delivery's kind inside the middleware. An
// unknown kind is ErrNoHandler.
func (m *Mux) HandleTask(ctx context.Context, d *Delivery) error {
	return m.chain.HandleTask(ctx, d)
}

func (m *Mux) route(ctx context.Context, d *Delivery) error {
	h := m.handlers[d.Kind]
	if h == nil {
		return fmt.Errorf("%w: %q", ErrNoHandler, d.Kind)
	}
	return h.HandleTask(ctx, d)
}
