package main

import (
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// bundle is a shop on SQLite and miniredis, without its outbox running.
type bundle struct {
	shop    *shop
	store   *store
	queue   *queue.Queue
	outbox  *outbox
	counter http.Handler
}

func setup(t *testing.T, items ...item) *bundle {
	t.Helper()
	_, rdb := redistest.Mini(t)
	tasks, err := queue.New(rdb, "shop", queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	p := place{File: filepath.Join(t.TempDir(), "shop.db")}
	s, err := p.open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close() })
	if err := p.create(t.Context(), s, items); err != nil {
		t.Fatal(err)
	}
	owed := make(chan struct{}, 1)
	b := &bundle{store: s, queue: tasks, outbox: &outbox{store: s, queue: tasks, notice: 30 * time.Second, owed: owed}}
	b.shop = &shop{store: s, queue: tasks, deadline: time.Minute, board: newBoard(s, tasks), owed: owed}
	for _, item := range items {
		b.shop.items = append(b.shop.items, item.Name)
	}
	b.counter = (&counter{shop: b.shop, board: b.shop.board, warn: func(err error) { t.Error(err) }}).handler()
	return b
}

// buy places an order that must succeed.
func (b *bundle) buy(t *testing.T, buyer string) order {
	t.Helper()
	o, _, err := b.shop.place(t.Context(), buyer, "phone")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func (b *bundle) flush(t *testing.T) {
	t.Helper()
	if _, err := b.outbox.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// isTask wants the task of an ID to be in a state.
func (b *bundle) isTask(t *testing.T, id string, want queue.State) queue.Info {
	t.Helper()
	info, err := b.queue.Get(t.Context(), id)
	if err != nil || info.State != want {
		t.Errorf("task %s is %s, %v; want %s", id, info.State, err, want)
	}
	return info
}

func TestToPayTwiceIsToPayOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, item{"phone", 1})
	o := b.buy(t, "ann")
	for range 2 {
		if paidFor, err := b.shop.pay(t.Context(), o.ID); err != nil || paidFor.State != paid {
			t.Errorf("got %+v, %v; want it paid", paidFor, err)
		}
	}
	if f := auditOf(t, b.store); f.Paid != 1 {
		t.Errorf("%+v, want one payment", f)
	}
}

func TestAnOrderGetsItsTasksThoughTheShopDiedAfterTheCommit(t *testing.T) {
	t.Parallel()
	b := setup(t, item{"phone", 1})
	o := b.buy(t, "ann")
	b.isTask(t, cancelID(o.ID), queue.Missing) // the shop dies here; another comes up
	b.flush(t)
	info := b.isTask(t, cancelID(o.ID), queue.Due)
	if info.At.Before(o.PayBy) {
		t.Errorf("due at %v, before %v", info.At, o.PayBy)
	}
	notice := b.isTask(t, remindID(o.ID), queue.Due)
	if early := info.At.Sub(notice.At); (early - b.outbox.notice).Abs() > 10*time.Second {
		t.Errorf("reminded %v before it is cancelled", early)
	}
	if !notice.Expires.Equal(o.PayBy) || notice.OnExpiry != duly.Dropped {
		t.Errorf("the reminder expires at %v, by %q; want dropped at %v", notice.Expires, notice.OnExpiry, o.PayBy)
	}
}

func TestATaskIsOneThoughTheShopDiedAfterTheEnqueue(t *testing.T) {
	t.Parallel()
	b := setup(t, item{"phone", 1})
	o := b.buy(t, "ann")
	o, err := b.shop.pay(t.Context(), o.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.outbox.ship(t.Context(), []order{o}); err != nil { // and the debt stays
		t.Fatal(err)
	}
	b.flush(t)
	b.isTask(t, shipID(o.ID), queue.Due)
	if stats, err := b.queue.Stats(t.Context()); err != nil || stats.Due != 1 {
		t.Errorf("%d tasks, %v; want one", stats.Due, err)
	}
	if n, err := b.outbox.flush(t.Context()); n != 0 || err != nil {
		t.Errorf("%d debts left, %v", n, err)
	}
}

func TestPayingCancelsTheCancelTask(t *testing.T) {
	t.Parallel()
	b := setup(t, item{"phone", 1})
	o := b.buy(t, "ann")
	b.flush(t)
	b.isTask(t, cancelID(o.ID), queue.Due)
	if _, err := b.shop.pay(t.Context(), o.ID); err != nil {
		t.Fatal(err)
	}
	b.flush(t)
	b.isTask(t, cancelID(o.ID), queue.Missing)
	b.isTask(t, shipID(o.ID), queue.Due)
}

// ask sends a request to the shop's handler.
func (b *bundle) ask(t *testing.T, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	b.counter.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	return w
}

func TestTheShopOverHTTP(t *testing.T) {
	t.Parallel()
	b := setup(t, item{"phone", 1})
	var o order
	for _, c := range []struct {
		method, path, body string
		want               int
	}{
		{"POST", "/orders", `{"buyer":"ann","item":"phone"}`, 201},
		{"POST", "/orders", `{"buyer":"ann","item":"phone"}`, 200},
		{"POST", "/orders", `{"buyer":"bob","item":"phone"}`, 409},
		{"POST", "/orders", `{"buyer":"bob","item":"boat"}`, 404},
		{"POST", "/orders", `{"buyer":"","item":"phone"}`, 400},
		{"POST", "/orders", `{"buyer":"` + strings.Repeat("x", 5000) + `","item":"phone"}`, 400},
		{"POST", "/orders", `not JSON`, 400},
		{"GET", "/orders", ``, 405},
		{"GET", "/orders/ID", ``, 200},
		{"GET", "/orders/none", ``, 404},
		{"GET", "/orders/none/parcel", ``, 404},
		{"GET", "/orders/ID/parcel", ``, 409},
		{"POST", "/orders/none/pay", ``, 404},
		{"POST", "/orders/ID/pay", ``, 200},
		{"GET", "/nowhere", ``, 404},
	} {
		w := b.ask(t, c.method, strings.Replace(c.path, "ID", o.ID, 1), c.body)
		if w.Code != c.want {
			t.Errorf("%s %s %.60s: status %d, want %d: %s", c.method, c.path, c.body, w.Code, c.want, w.Body)
		}
		if w.Code == http.StatusCreated {
			if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil || o.ID == "" {
				t.Fatalf("no order in %s: %v", w.Body, err)
			}
		}
	}
}

func TestSoldOutSaysWhetherToComeAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, item{"phone", 1})
	o := b.buy(t, "ann")
	b.shop.board.refresh(t.Context())
	w := b.ask(t, "POST", "/orders", `{"buyer":"bob","item":"phone"}`)
	if w.Code != http.StatusConflict || w.Header().Get("Retry-After") != "60" {
		t.Errorf("while one is reserved: %d, %v", w.Code, w.Header())
	}
	if _, err := b.shop.pay(t.Context(), o.ID); err != nil {
		t.Fatal(err)
	}
	b.shop.board.refresh(t.Context())
	if w := b.ask(t, "POST", "/orders", `{"buyer":"bob","item":"phone"}`); w.Code != http.StatusGone {
		t.Errorf("when all are paid: %d", w.Code)
	}
	if w := b.ask(t, "POST", "/orders/"+o.ID+"/pay", ""); w.Code != http.StatusOK {
		t.Errorf("to pay again: %d", w.Code)
	}
}

func TestAStaleBoardNeverSaysThatThereIsNoHope(t *testing.T) {
	t.Parallel()
	b := setup(t, item{"phone", 1})
	b.shop.board.refresh(t.Context()) // one in stock, none reserved
	b.buy(t, "ann")
	for range 2 { // asked of the database, then of the board
		if _, _, err := b.shop.place(t.Context(), "bob", "phone"); !errors.Is(err, errSoldOut) {
			t.Errorf("got %v, want sold out", err)
		}
	}
}

func TestThePageNeedsNoScriptAndEscapes(t *testing.T) {
	t.Parallel()
	b := setup(t, item{"<b>phone</b>", 10})
	b.shop.board.refresh(t.Context())
	w := b.ask(t, "GET", "/", "")
	csp := w.Header().Get("Content-Security-Policy")
	if w.Code != http.StatusOK || !strings.HasPrefix(csp, "default-src 'none';") || strings.Contains(csp, "unsafe") {
		t.Errorf("status %d, policy %q", w.Code, csp)
	}
	html := w.Body.String()
	if strings.Contains(html, "<script") || strings.Contains(html, "<b>phone") || !strings.Contains(html, "&lt;b&gt;phone") {
		t.Errorf("page:\n%s", html)
	}
	if w := b.ask(t, "GET", "/style.css", ""); w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/css") {
		t.Errorf("style sheet: %d, %v", w.Code, w.Header())
	}
}

func TestTroubleIsToldToTheLogAndNotToTheBuyer(t *testing.T) {
	t.Parallel()
	b := setup(t, item{"phone", 1})
	var told error
	counter := (&counter{shop: b.shop, board: b.shop.board, warn: func(err error) { told = err }}).handler()
	if err := b.store.close(); err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/orders", strings.NewReader(`{"buyer":"ann","item":"phone"}`))
	counter.ServeHTTP(w, r)
	if w.Code != http.StatusServiceUnavailable || told == nil || strings.Contains(w.Body.String(), "database") {
		t.Errorf("status %d, body %s, log %v", w.Code, w.Body, told)
	}
}

func TestBuyersWhoGetNoAnswerAreToldApart(t *testing.T) {
	t.Parallel()
	broken := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	}))
	broken.Config.ErrorLog = log.New(io.Discard, "", 0)
	broken.Start()
	defer broken.Close()
	c := newCrowd(broken.URL, &config{Buyers: 4, Phones: 1, Earphones: 1, Deadline: time.Second})
	if err := c.run(t.Context()); err == nil || !strings.Contains(err.Error(), "2 buyers of phone got no answer") {
		t.Errorf("got %v", err)
	}
}
