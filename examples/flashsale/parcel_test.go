package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dulyhq/duly/queue"
)

// parcelOf asks for a parcel over HTTP.
func (b *bundle) parcelOf(ctx context.Context, t *testing.T, id string) (status int, p parcel) {
	t.Helper()
	w := httptest.NewRecorder()
	b.counter.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/orders/"+id+"/parcel", nil))
	if w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Errorf("%s: %v", w.Body, err)
		}
	}
	return w.Code, p
}

// bought is an order that is paid.
func (b *bundle) bought(t *testing.T) order {
	t.Helper()
	o, err := b.shop.pay(t.Context(), b.buy(t, "ann").ID)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestABuyerWaitsForHisParcelThoughItsTaskIsNotEnqueuedYet(t *testing.T) {
	t.Parallel()
	b := setup(t, item{"phone", 1})
	o := b.bought(t)
	type reply struct {
		status int
		parcel parcel
	}
	got := make(chan reply, 1)
	go func() {
		status, p := b.parcelOf(t.Context(), t, o.ID)
		got <- reply{status, p}
	}()
	sleep(t.Context(), 2*taskPoll) // so that he asks too early, mostly
	b.work(t)
	b.flush(t)
	r := <-got
	sent, err := b.store.parcel(t.Context(), o.ID)
	if r.status != http.StatusOK || r.parcel != sent || sent.Tracking == "" || err != nil {
		t.Errorf("got %+v; want %v, %v", r, sent, err)
	}
}

func TestAParcelIsToldOfThoughTheQueueHasForgottenIt(t *testing.T) {
	t.Parallel()
	b := setup(t, item{"phone", 1})
	o := b.bought(t)
	sent, err := b.shop.ship(t.Context(), o.ID, 1<<60)
	if err != nil {
		t.Fatal(err)
	}
	b.isTask(t, shipID(o.ID), queue.Missing)
	if status, p := b.parcelOf(t.Context(), t, o.ID); status != http.StatusOK || p != sent {
		t.Errorf("status %d, %v; want %v", status, p, sent)
	}
}

func TestWhoWaitsTooLongForAParcelIsToAskAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, item{"phone", 1})
	o := b.bought(t)
	for _, name := range []string{"before the task is enqueued", "while it is due"} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*taskPoll)
		if status, _ := b.parcelOf(ctx, t, o.ID); status != http.StatusGatewayTimeout {
			t.Errorf("%s: status %d", name, status)
		}
		cancel()
		b.flush(t)
	}
}

func TestARepeatedShipTaskBringsTheSameNumber(t *testing.T) {
	t.Parallel()
	b := setup(t, item{"phone", 1})
	o := b.bought(t)
	first, err := b.shop.ship(t.Context(), o.ID, 1<<60)
	again, err2 := b.shop.ship(t.Context(), o.ID, 1<<60+1)
	if first != again || errors.Join(err, err2) != nil {
		t.Errorf("%v and then %v, %v", first, again, errors.Join(err, err2))
	}
}
