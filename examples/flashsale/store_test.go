package main

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// onEachDatabase runs a test on SQLite, and on PostgreSQL if DATABASE_URL says
// where. Each has the tables of its own place, with the given items in stock.
func onEachDatabase(t *testing.T, items []item, test func(t *testing.T, p place, s *store)) {
	t.Helper()
	places := map[string]place{"SQLite": {File: filepath.Join(t.TempDir(), "a shop?.db")}}
	if url := os.Getenv("DATABASE_URL"); url != "" {
		places["PostgreSQL"] = place{URL: url, Schema: "flashsale-test-" + strings.ToLower(rand.Text()[:10])}
	}
	for name, p := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := p.open()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := errors.Join(p.drop(context.Background(), s), s.close()); err != nil {
					t.Error(err)
				}
			})
			if err := p.create(t.Context(), s, items); err != nil {
				t.Fatal(err)
			}
			test(t, p, s)
		})
	}
}

// sold places an order that must succeed.
func sold(t *testing.T, s *store, id, buyer, item string) order {
	t.Helper()
	o, old, err := s.place(t.Context(), order{ID: id, Buyer: buyer, Item: item, PayBy: time.Now()})
	if err != nil || old {
		t.Fatalf("place %s: old %v, %v", id, old, err)
	}
	return o
}

// isState wants an error to say that an order is in a state.
func isState(t *testing.T, err error, want state) {
	t.Helper()
	var is *stateError
	if !errors.As(err, &is) || is.state != want {
		t.Errorf("got %v, want that the order is %s", err, want)
	}
}

func auditOf(t *testing.T, s *store) *itemFigures {
	t.Helper()
	items, err := audit(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return items[0]
}

func TestTwoProcessesNeverSellAnEleventhPhone(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, []item{{"phone", 10}}, func(t *testing.T, p place, s *store) {
		other, err := p.open()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = other.close() }()
		var all sync.WaitGroup
		for n := range 60 {
			from := []*store{s, other}[n%2]
			all.Go(func() {
				_, _, err := from.place(t.Context(), order{ID: rand.Text(), Buyer: strconv.Itoa(n), Item: "phone", PayBy: time.Now()})
				if err != nil && !errors.Is(err, errSoldOut) {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if f := auditOf(t, s); f.Accepted != 10 || f.Left != 0 || f.Oversold != 0 {
			t.Errorf("%+v, want 10 accepted and none left", f)
		}
	})
}

func TestOneOrderForABuyerWhoAsksTwice(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, []item{{"phone", 1}}, func(t *testing.T, _ place, s *store) {
		sold(t, s, "a", "ann", "phone")
		again, old, err := s.place(t.Context(), order{ID: "b", Buyer: "ann", Item: "phone", PayBy: time.Now()})
		if again.ID != "a" || !old || err != nil {
			t.Errorf("got %+v, old %v, %v; want the first order", again, old, err)
		}
		if _, _, err := s.place(t.Context(), order{ID: "c", Buyer: "bob", Item: "phone", PayBy: time.Now()}); !errors.Is(err, errSoldOut) {
			t.Errorf("bob got %v, want sold out", err)
		}
		if err := s.cancel(t.Context(), "a", 1); err != nil {
			t.Fatal(err)
		}
		sold(t, s, "d", "ann", "phone")
	})
}

func TestAnOrderIsPaidOrCancelledAndNeverBoth(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, []item{{"phone", 2}}, func(t *testing.T, _ place, s *store) {
		ctx := t.Context()
		sold(t, s, "a", "ann", "phone")
		sold(t, s, "b", "bob", "phone")
		if err := errors.Join(s.pay(ctx, "a", 1), s.cancel(ctx, "b", 2)); err != nil {
			t.Fatal(err)
		}
		isState(t, s.cancel(ctx, "a", 3), paid)
		isState(t, s.pay(ctx, "b", 4), cancelled)
		isState(t, s.cancel(ctx, "b", 5), cancelled)
		if err := s.pay(ctx, "c", 6); !errors.Is(err, errNoOrder) {
			t.Errorf("pay an unknown order: %v", err)
		}
		if err := s.cancel(ctx, "c", 6); !errors.Is(err, errNoOrder) {
			t.Errorf("cancel an unknown order: %v", err)
		}
		if f := auditOf(t, s); f.Left != 1 || f.Paid != 1 || f.Cancelled != 1 || f.PaidAndCancelled != 0 {
			t.Errorf("%+v, want one paid, one cancelled and its piece back", f)
		}
	})
}

// shipping ships with the number "T".
func shipping(s *store) func(context.Context, string, uint64) error {
	return func(ctx context.Context, id string, fence uint64) error {
		_, err := s.ship(ctx, id, parcel{"T"}, fence)
		return err
	}
}

func TestOnlyAnUnpaidOrderIsRemindedOf(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, []item{{"phone", 1}}, func(t *testing.T, _ place, s *store) {
		ctx := t.Context()
		sold(t, s, "a", "ann", "phone")
		if err := errors.Join(s.remind(ctx, "a", 1), s.pay(ctx, "a", 2)); err != nil {
			t.Fatal(err)
		}
		isState(t, s.remind(ctx, "a", 3), paid)
		if f := auditOf(t, s); f.Reminded != 1 || f.Paid != 1 {
			t.Errorf("%+v, want one reminder and one payment", f)
		}
	})
}

func TestTheStoreRefusesAnOlderFence(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, []item{{"phone", 1}}, func(t *testing.T, _ place, s *store) {
		ctx := t.Context()
		sold(t, s, "a", "ann", "phone")
		if err := s.pay(ctx, "a", 7); err != nil {
			t.Fatal(err)
		}
		for name, late := range map[string]func(context.Context, string, uint64) error{
			"remind": s.remind, "cancel": s.cancel, "ship": shipping(s),
		} {
			if err := late(ctx, "a", 6); !errors.Is(err, errStale) {
				t.Errorf("%s with an older fence: %v", name, err)
			}
		}
		if f := auditOf(t, s); f.Left != 0 || f.Shipped != 0 || f.Cancelled != 0 {
			t.Errorf("%+v: an older fence changed something", f)
		}
		if err := shipping(s)(ctx, "a", 8); err != nil {
			t.Error(err)
		}
	})
}

func TestARepeatedShipmentLeavesOnceUnderTheFirstNumber(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, []item{{"phone", 1}}, func(t *testing.T, _ place, s *store) {
		ctx := t.Context()
		sold(t, s, "a", "ann", "phone")
		isState(t, shipping(s)(ctx, "a", 1), reserved)
		if err := s.pay(ctx, "a", 2); err != nil {
			t.Fatal(err)
		}
		if _, err := s.parcel(ctx, "a"); !errors.Is(err, errNoParcel) {
			t.Errorf("before it left: %v", err)
		}
		for fence, number := range []string{"T1", "T2", "T3"} {
			if p, err := s.ship(ctx, "a", parcel{number}, 3+uint64(fence)); p.Tracking != "T1" || err != nil {
				t.Errorf("shipment %d: %v, %v; want T1", fence+1, p, err)
			}
		}
		if f := auditOf(t, s); f.Shipped != 1 || f.DoubleShipped != 0 || f.Lost != 0 {
			t.Errorf("%+v, want one parcel", f)
		}
	})
}

func TestADebtIsClearedOnlyAsItWasRead(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, []item{{"phone", 1}}, func(t *testing.T, _ place, s *store) {
		ctx := t.Context()
		sold(t, s, "a", "ann", "phone")
		read, err := s.owing(ctx, 10)
		if err != nil || len(read) != 1 || read[0].owes != owesDeadline {
			t.Fatalf("owing %+v, %v; want the tasks about its deadline", read, err)
		}
		if err := s.pay(ctx, "a", 1); err != nil { // between the reading and the clearing
			t.Fatal(err)
		}
		if err := s.settled(ctx, read); err != nil {
			t.Fatal(err)
		}
		if read, err = s.owing(ctx, 10); err != nil || len(read) != 1 || read[0].owes != owesShip {
			t.Fatalf("owing %+v, %v; want the ship task", read, err)
		}
		if err := s.settled(ctx, read); err != nil {
			t.Fatal(err)
		}
		if read, err = s.owing(ctx, 10); err != nil || len(read) != 0 {
			t.Errorf("owing %+v, %v; want nothing", read, err)
		}
	})
}

func TestDropLeavesNoSchema(t *testing.T) {
	t.Parallel()
	url := os.Getenv("DATABASE_URL")
	if url == "" {
		t.Skip("skipped: needs DATABASE_URL")
	}
	p := place{URL: url, Schema: "flashsale-test-" + strings.ToLower(rand.Text()[:10])}
	s, err := p.open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.close() }()
	ctx := t.Context()
	if err := errors.Join(p.create(ctx, s, nil), p.drop(ctx, s)); err != nil {
		t.Fatal(err)
	}
	var n int
	err = s.read.QueryRowContext(ctx, `SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = $1`, p.Schema).Scan(&n)
	if n != 0 || err != nil {
		t.Errorf("%d schemas left, %v", n, err)
	}
}
