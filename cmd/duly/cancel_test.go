package main

import (
	"testing"
	"time"

	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

func TestCancelRunningToo(t *testing.T) {
	t.Parallel()
	m, rdb := redistest.Mini(t)
	q, err := queue.New(rdb, "orders", queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	addr := m.Addr()
	object(t, addr, "enqueue", "orders", "k", "-id", "a")
	ds, _, err := q.Pop(t.Context(), 1, time.Minute)
	if err != nil || len(ds) != 1 {
		t.Fatal(len(ds), err)
	}
	object(t, addr, "enqueue", "orders", "k", "-id", "b")
	if o := object(t, addr, "cancel", "orders", "a"); o["cancelled"] != false || o["found"] != "leased" {
		t.Errorf("cancel: %v", o)
	}
	status, out, errs := invoke(t, addr, "", "cancel", "-running", "orders", "a", "b", "c")
	want := "\"a\" was leased: cancelled\n\"b\" was due: cancelled\n\"c\" was missing: left alone\n"
	if status != 0 || out != want || errs != "" {
		t.Errorf("cancel -running: status %d, printed %q and %q", status, out, errs)
	}
	if _, cancelled, err := q.Extend(t.Context(), ds, time.Minute); err != nil || len(cancelled) != 1 {
		t.Errorf("%d were cancelled: %v", len(cancelled), err)
	}
}

func TestWhatReplacesARunningTaskIsCancelledAndRescheduled(t *testing.T) {
	t.Parallel()
	m, rdb := redistest.Mini(t)
	q, err := queue.New(rdb, "orders", queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	addr := m.Addr()
	object(t, addr, "enqueue", "orders", "k", "-id", "a")
	if ds, _, err := q.Pop(t.Context(), 1, time.Minute); err != nil || len(ds) != 1 {
		t.Fatal(len(ds), err)
	}
	for _, c := range []struct{ verb, done string }{{"reschedule", "rescheduled"}, {"cancel", "cancelled"}} {
		replace := []string{"enqueue", "orders", "k", "-id", "a", "-in", "1h", "-on-conflict", "replace"}
		object(t, addr, replace...)
		if o := object(t, addr, c.verb, "orders", "a"); o[c.done] != true || o["replacement"] != true || o["found"] != "leased" {
			t.Errorf("%s: %v", c.verb, o)
		}
		object(t, addr, replace...)
		want := "\"a\" was leased, its replacement due: " + c.done + "\n"
		if _, out, _ := invoke(t, addr, "", c.verb, "orders", "a"); out != want {
			t.Errorf("%s: %q, want %q", c.verb, out, want)
		}
		_, err := q.Cancel(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		if o := object(t, addr, c.verb, "orders", "a"); o[c.done] != false || o["replacement"] != nil || o["found"] != "leased" {
			t.Errorf("%s without a replacement: %v", c.verb, o)
		}
	}
}
