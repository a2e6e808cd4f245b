package duly_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dulyhq/duly"
)

type shipArgs struct {
	Order string `json:"order"`
}

func TestOutcomeIsFoundThroughWrapping(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, tc := range []struct {
		name   string
		err    error
		action duly.Action
		in     time.Duration
		ok     bool
	}{
		{"nil is done", nil, duly.Acked, 0, true},
		{"an error is retried", boom, duly.Retried, 0, false},
		{"RetryIn", duly.RetryIn(time.Second, boom), duly.Retried, time.Second, true},
		{"RetryIn of a negative time", duly.RetryIn(-time.Second, boom), duly.Retried, 0, true},
		{"Snooze", duly.Snooze(time.Minute), duly.Released, time.Minute, true},
		{"Snooze of a negative time", duly.Snooze(-time.Minute), duly.Released, 0, true},
		{"Bury", duly.Bury(boom), duly.Buried, 0, true},
		{"Drop", duly.Drop(boom), duly.Dropped, 0, true},
		{"Drop of nil", duly.Drop(nil), duly.Dropped, 0, true},
		{"wrapped", fmt.Errorf("ship: %w", duly.Bury(boom)), duly.Buried, 0, true},
		{"joined", errors.Join(boom, duly.Snooze(time.Hour)), duly.Released, time.Hour, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			action, in, ok := duly.Outcome(tc.err)
			if action != tc.action || in != tc.in || ok != tc.ok {
				t.Errorf("Outcome(%v) = %v, %v, %v; want %v, %v, %v", tc.err, action, in, ok, tc.action, tc.in, tc.ok)
			}
		})
	}
	for _, err := range []error{duly.RetryIn(1, boom), duly.Bury(boom), duly.Drop(boom)} {
		if !errors.Is(err, boom) || !strings.Contains(err.Error(), "boom") {
			t.Errorf("%v hides its cause", err)
		}
	}
}

func TestKindTask(t *testing.T) {
	t.Parallel()
	useless := time.Now().Add(time.Hour)
	ship := duly.Kind[shipArgs]{
		Name: "order.ship", MaxAttempts: 7, Timeout: time.Minute, OnExpiry: duly.Dropped,
		ID:      func(a shipArgs) string { return "ship:" + a.Order },
		LockKey: func(a shipArgs) string { return "order:" + a.Order },
		Expires: func(shipArgs) time.Time { return useless },
	}
	got := ship.Task(shipArgs{"42"})
	if got.Err() != nil {
		t.Fatal(got.Err())
	}
	if got.Kind != "order.ship" || got.ID != "ship:42" || got.LockKey != "order:42" || got.MaxAttempts != 7 ||
		got.Timeout != time.Minute || !got.Expires.Equal(useless) || got.OnExpiry != duly.Dropped || string(got.Payload) != `{"order":"42"}` {
		t.Errorf("Task = %+v", got)
	}
}

func TestKindTaskReportsWhatItCannotMake(t *testing.T) {
	t.Parallel()
	if err := (duly.Kind[chan int]{Name: "k"}).Task(nil).Err(); err == nil {
		t.Error("a channel was encoded")
	} else if unsupported := new(json.UnsupportedTypeError); !errors.As(err, &unsupported) {
		t.Errorf("error %v does not say why", err)
	}
	noID := duly.Kind[shipArgs]{Name: "k", ID: func(shipArgs) string { return "" }}
	if noID.Task(shipArgs{}).Err() == nil {
		t.Error("an empty business key was taken")
	}
}

func TestKindHandle(t *testing.T) {
	t.Parallel()
	ship := duly.Kind[shipArgs]{Name: "order.ship"}
	mux := duly.NewMux()
	var got shipArgs
	ship.Handle(mux, func(_ context.Context, a shipArgs, _ *duly.Delivery) error {
		got = a
		return nil
	})
	if err := mux.HandleTask(t.Context(), &duly.Delivery{Task: ship.Task(shipArgs{"42"})}); err != nil || got.Order != "42" {
		t.Errorf("handled %+v with %v", got, err)
	}
	broken := &duly.Delivery{Task: duly.Task{Kind: "order.ship", Payload: []byte("{")}}
	if action, _, _ := duly.Outcome(mux.HandleTask(t.Context(), broken)); action != duly.Buried {
		t.Errorf("a payload that does not decode is %s, not buried", action)
	}
}

func TestMux(t *testing.T) {
	t.Parallel()
	var calls []string
	trace := func(name string) duly.Middleware {
		return func(next duly.Handler) duly.Handler {
			return duly.HandlerFunc(func(ctx context.Context, d *duly.Delivery) error {
				calls = append(calls, name)
				return next.HandleTask(ctx, d)
			})
		}
	}
	mux := duly.NewMux()
	mux.Use(trace("outer"), trace("middle"))
	mux.HandleFunc("a", func(context.Context, *duly.Delivery) error {
		calls = append(calls, "a")
		return nil
	})
	mux.Use(trace("inner"))
	if err := mux.HandleTask(t.Context(), &duly.Delivery{Task: duly.Task{Kind: "a"}}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"outer", "middle", "inner", "a"}; !slices.Equal(calls, want) {
		t.Errorf("called %v, want %v", calls, want)
	}
	if err := mux.HandleTask(t.Context(), &duly.Delivery{Task: duly.Task{Kind: "b"}}); !errors.Is(err, duly.ErrNoHandler) {
		t.Errorf("an unknown kind is %v", err)
	}
	if got := mux.Kinds(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("Kinds = %v", got)
	}
}

func TestMuxPanicsOnAProgrammersError(t *testing.T) {
	t.Parallel()
	h := func(context.Context, *duly.Delivery) error { return nil }
	for name, register := range map[string]func(*duly.Mux){
		"empty kind":  func(m *duly.Mux) { m.HandleFunc("", h) },
		"nil handler": func(m *duly.Mux) { m.Handle("k", nil) },
		"nil func":    func(m *duly.Mux) { m.HandleFunc("k", nil) },
		"twice":       func(m *duly.Mux) { m.HandleFunc("k", h); m.HandleFunc("k", h) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			register(duly.NewMux())
		})
	}
}

// A kind is declared once: Task makes what a producer enqueues, Handle registers
// what a worker runs.
func ExampleKind() {
	ship := duly.Kind[shipArgs]{
		Name: "order.ship",
		ID:   func(a shipArgs) string { return "ship:" + a.Order },
	}
	mux := duly.NewMux()
	ship.Handle(mux, func(_ context.Context, a shipArgs, d *duly.Delivery) error {
		fmt.Printf("%s: order %s, attempt %d\n", d.ID, a.Order, d.Attempt)
		return nil
	})
	task := ship.Task(shipArgs{Order: "42"})
	_ = mux.HandleTask(context.Background(), &duly.Delivery{Task: task, Attempt: 1})
	// Output: ship:42: order 42, attempt 1
}

// Outcomes are errors, so they can be returned from wherever the reason is found.
func ExampleBury() {
	err := fmt.Errorf("charge card: %w", duly.Bury(errors.New("card was stolen")))
	action, _, _ := duly.Outcome(err)
	fmt.Println(action)
	fmt.Println(err)
	// Output:
	// bury
	// charge card: duly: bury: card was stolen
}
