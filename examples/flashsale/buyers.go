package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A crowd is the load: every buyer comes over HTTP, and knows no more of the shop
// than its answers. A buyer who waits is a timer and no goroutine: 20,000 stacks
// would cost the CPUs that the shop is to have.
type crowd struct {
	shop     string // its URL
	client   *http.Client
	stalls   []*stall // an item each
	arrivals chan *buyer
	payers   chan *buyer
	awaiting chan *buyer   // their parcels
	inside   atomic.Int64  // buyers who have not left
	left     chan struct{} // closed when the last one has

	rush     time.Duration
	deadline time.Duration
	unpaid   int // %
	late     int // %
}

// How many buyers are served at a time. Who pays need not queue with those who
// come, and who waits for his parcel keeps nobody from paying.
const (
	visitors = 8
	cashiers = 24
	benches  = 64
)

// A stall is where the buyers of one item queue, and what they heard there.
type stall struct {
	item string

	soldOut               atomic.Int64
	late, inTime, tooLate atomic.Int64 // winners who paid right at the deadline
	unserved              atomic.Int64 // the shop never gave an answer
	trouble               atomic.Pointer[error]

	mu     sync.Mutex // guards what follows
	buyers []*buyer
	closed bool // one of them has heard that it is sold out for good
}

// A buyer wants one piece.
type buyer struct {
	name    string
	stall   *stall
	wait    time.Duration // before coming again
	next    *time.Timer   // guarded by the stall's mutex
	waiting bool          // the last answer was that it is sold out for now
	order   order
	late    bool
	parcel  parcel // what he was told of it
}

func newCrowd(shop string, c *config) *crowd {
	all := &crowd{
		shop: shop, rush: c.Rush, deadline: c.Deadline, unpaid: c.Unpaid, late: c.Late,
		arrivals: make(chan *buyer, c.Buyers), payers: make(chan *buyer, c.Buyers), // no timer ever waits
		awaiting: make(chan *buyer, c.Buyers),
		left:     make(chan struct{}),
		client: &http.Client{
			Timeout:   30 * time.Second,
			Transport: &http.Transport{MaxIdleConnsPerHost: visitors + cashiers + benches, DisableCompression: true},
		},
	}
	for _, item := range c.items() {
		all.stalls = append(all.stalls, &stall{item: item.Name})
	}
	for n := range c.Buyers {
		s := all.stalls[n%len(all.stalls)]
		s.buyers = append(s.buyers, &buyer{name: "buyer-" + strconv.Itoa(n+1), stall: s, wait: 2 * c.Deadline})
	}
	all.inside.Store(int64(c.Buyers))
	return all
}

// run lets the buyers come, and returns when the last one has left or ctx has
// ended. The error says how many the shop owed an answer, and why the last of them
// went without.
func (c *crowd) run(ctx context.Context) error {
	ctx, over := context.WithCancel(ctx)
	var serving sync.WaitGroup
	for range visitors {
		serving.Go(func() { serve(ctx, c.arrivals, c.visit) })
	}
	for range cashiers {
		serving.Go(func() { serve(ctx, c.payers, c.pay) })
	}
	for range benches {
		serving.Go(func() { serve(ctx, c.awaiting, c.await) })
	}
	for _, s := range c.stalls {
		for _, b := range s.buyers {
			c.come(b, upTo(c.rush))
		}
	}
	select {
	case <-c.left:
	case <-ctx.Done():
	}
	over()
	serving.Wait()
	c.client.CloseIdleConnections()
	for _, s := range c.stalls {
		for _, b := range s.buyers {
			if b.waiting { // and was not called any more
				s.soldOut.Add(1)
			}
		}
	}
	return c.trouble()
}

// serve lets one buyer after another do something.
func serve(ctx context.Context, line <-chan *buyer, do func(context.Context, *buyer)) {
	for {
		select {
		case b := <-line:
			do(ctx, b)
		case <-ctx.Done():
			return
		}
	}
}

// come lets a buyer come to the shop after d. Once the word is out that there is
// no hope, all come soon to hear it themselves.
func (c *crowd) come(b *buyer, d time.Duration) {
	b.stall.mu.Lock()
	defer b.stall.mu.Unlock()
	if b.stall.closed {
		d = min(d, 100*time.Millisecond)
	}
	b.next = time.AfterFunc(d, func() { c.arrivals <- b })
}

// spread spreads the word that an item is sold out for good.
func (c *crowd) spread(s *stall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	for _, b := range s.buyers {
		if b.next != nil && b.next.Stop() {
			c.arrivals <- b
		}
	}
}

// visit tries to get an order. Who is turned away comes again, less and less
// often: a piece that is reserved may come back. The winners differ: most pay
// soon, some never, and some at the very moment at which the order is cancelled.
func (c *crowd) visit(ctx context.Context, b *buyer) {
	status, err := c.ask(ctx, http.MethodPost, "/orders", `{"buyer":"`+b.name+`","item":"`+b.stall.item+`"}`, &b.order)
	switch {
	case err != nil:
		c.leave(ctx, b, err)
	case status == http.StatusCreated || status == http.StatusOK:
		b.waiting = false
		luck := rand.IntN(100) //nolint:gosec // a simulation
		switch {
		case luck < c.unpaid:
			c.leave(ctx, b, nil)
		case luck < c.unpaid+c.late:
			b.late = true
			b.stall.late.Add(1)
			c.payIn(b, time.Until(b.order.PayBy)-15*time.Millisecond+upTo(40*time.Millisecond))
		default:
			c.payIn(b, upTo(c.deadline*6/10))
		}
	case status == http.StatusGone:
		b.waiting = false
		b.stall.soldOut.Add(1)
		c.spread(b.stall)
		c.leave(ctx, b, nil)
	case status == http.StatusConflict:
		b.waiting = true
		pause := b.wait/2 + upTo(b.wait)
		b.wait = min(2*b.wait, 4*c.deadline)
		c.come(b, pause)
	default:
		c.leave(ctx, b, fmt.Errorf("POST /orders: status %d", status))
	}
}

func (c *crowd) payIn(b *buyer, d time.Duration) { time.AfterFunc(d, func() { c.payers <- b }) }

// pay pays. Whose order has been cancelled leaves, and the others wait for what
// they have bought.
func (c *crowd) pay(ctx context.Context, b *buyer) {
	path := "/orders/" + b.order.ID + "/pay"
	status, err := c.ask(ctx, http.MethodPost, path, "", &b.order)
	if err == nil && status != http.StatusOK && status != http.StatusConflict {
		err = fmt.Errorf("POST %s: status %d", path, status)
	}
	if b.late && status == http.StatusOK {
		b.stall.inTime.Add(1)
	}
	if b.late && status == http.StatusConflict {
		b.stall.tooLate.Add(1)
	}
	if err == nil && status == http.StatusOK {
		c.awaiting <- b
		return
	}
	c.leave(ctx, b, err)
}

// await asks for the parcel until it has left, and is the last thing that a buyer
// does.
func (c *crowd) await(ctx context.Context, b *buyer) {
	path := "/orders/" + b.order.ID + "/parcel"
	for {
		status, err := c.ask(ctx, http.MethodGet, path, "", &b.parcel)
		if err == nil && status == http.StatusGatewayTimeout {
			continue
		}
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("GET %s: status %d", path, status)
		}
		c.leave(ctx, b, err)
		return
	}
}

// told is what the buyers were told of their parcels, by order.
func (c *crowd) told() map[string]parcel {
	told := make(map[string]parcel)
	for _, s := range c.stalls {
		for _, b := range s.buyers {
			if b.parcel != (parcel{}) {
				told[b.order.ID] = b.parcel
			}
		}
	}
	return told
}

// leave lets a buyer go, and counts him if the shop owed him an answer.
func (c *crowd) leave(ctx context.Context, b *buyer, err error) {
	if err != nil && ctx.Err() == nil {
		b.stall.unserved.Add(1)
		b.stall.trouble.Store(&err)
	}
	if c.inside.Add(-1) == 0 {
		close(c.left)
	}
}

// trouble is about the buyers who got no answer.
func (c *crowd) trouble() error {
	var errs []error
	for _, s := range c.stalls {
		if n := s.unserved.Load(); n > 0 {
			errs = append(errs, fmt.Errorf("%d buyers of %s got no answer: %w", n, s.item, *s.trouble.Load()))
		}
	}
	return errors.Join(errs...)
}

// turnedAway counts the buyers who have gone without hope.
func (c *crowd) turnedAway() int64 {
	var n int64
	for _, s := range c.stalls {
		n += s.soldOut.Load()
	}
	return n
}

// ask asks until the shop gives an answer, and reads what it has into v. To ask
// again is safe: all calls may be repeated.
func (c *crowd) ask(ctx context.Context, method, path, body string, v any) (status int, err error) {
	for range 10 {
		status, err = c.try(ctx, method, path, body, v)
		answered := status < http.StatusInternalServerError || status == http.StatusGatewayTimeout
		if err == nil && answered || ctx.Err() != nil {
			return status, err
		}
		sleep(ctx, 50*time.Millisecond+upTo(200*time.Millisecond))
	}
	if err == nil {
		err = fmt.Errorf("%s %s: status %d", method, path, status)
	}
	return status, err
}

func (c *crowd) try(ctx context.Context, method, path, body string, v any) (int, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.shop+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := c.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer func() {
		_, _ = io.Copy(io.Discard, resp.Body) // what is left would close the connection
		_ = resp.Body.Close()
	}()
	if resp.StatusCode < http.StatusMultipleChoices {
		err = json.NewDecoder(resp.Body).Decode(v)
	}
	return resp.StatusCode, err
}

// sleep waits for d, and reports whether ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return false
	case <-ctx.Done():
		return true
	}
}

// upTo is a random time from zero to d.
func upTo(d time.Duration) time.Duration { return rand.N(d + 1) } //nolint:gosec // a simulation
