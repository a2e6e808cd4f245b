package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// The figures are what was counted for an item, or for all. Those that must be
// zero are Oversold, DoubleShipped, Lost, PaidAndCancelled and Untold; and so must
// Early of the runs and Breaches of the stock audits.
type figures struct {
	Stock            int `json:"stock"`    // pieces there were
	Buyers           int `json:"buyers"`   // who came
	Accepted         int `json:"accepted"` // orders written
	SoldOut          int `json:"sold_out"` // buyers who heard it as their last answer
	Oversold         int `json:"oversold"`
	Paid             int `json:"paid"`
	Cancelled        int `json:"cancelled"`
	Shipped          int `json:"shipped"`
	DoubleShipped    int `json:"double_shipped"`
	Lost             int `json:"lost"`
	PaidAndCancelled int `json:"paid_and_cancelled"`
	Reminded         int `json:"reminded"` // orders
	Untold           int `json:"untold"`   // parcels whose buyer does not know the number
}

func (f *figures) add(g *figures) {
	f.Stock += g.Stock
	f.Buyers += g.Buyers
	f.Accepted += g.Accepted
	f.SoldOut += g.SoldOut
	f.Oversold += g.Oversold
	f.Paid += g.Paid
	f.Cancelled += g.Cancelled
	f.Shipped += g.Shipped
	f.DoubleShipped += g.DoubleShipped
	f.Lost += g.Lost
	f.PaidAndCancelled += g.PaidAndCancelled
	f.Reminded += g.Reminded
	f.Untold += g.Untold
}

// itemFigures are those of one item.
type itemFigures struct {
	Item string `json:"item"`
	figures
	Left int `json:"left"` // pieces still on sale
}

// A history is one order: where its row says that it stands, how often the ledger
// has it reminded of, paid, cancelled and shipped, the parcel that has left, and
// the one that its buyer was told of.
type history struct {
	item                               string
	state                              state
	reminded, paid, cancelled, parcels int
	sent, told                         parcel
}

// live: the order has its piece.
func (h *history) live() bool { return h.state != "" && h.state != cancelled }

// settled: the order has come to one of its two ends, and the ledger agrees.
func (h *history) settled() bool {
	return h.state == cancelled && h.cancelled > 0 || h.state == shipped && h.paid > 0 && h.parcels > 0
}

// audit counts the orders of each item from the tables: the state of the orders
// and, apart from it, the ledger of what happened. It trusts neither alone. told is
// what the buyers know of their parcels, by order.
func audit(ctx context.Context, s *store, told map[string]parcel) ([]*itemFigures, error) {
	shelves, err := s.shelves(ctx)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	histories, peaks, err := s.histories(ctx)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	for id, p := range told {
		if h := histories[id]; h != nil {
			h.told = p
		}
	}
	var items []*itemFigures
	for _, shelf := range shelves {
		f := &itemFigures{Item: shelf.Item, Left: shelf.Stock}
		f.Stock = shelf.Goods
		live := 0
		for _, h := range histories {
			if h.item == shelf.Item {
				f.count(h)
				live += btoi(h.live())
			}
		}
		// Too much at any moment counts, though it was put right later; so does
		// a piece that is on sale while somebody has it.
		f.Oversold = max(peaks[shelf.Item], live+shelf.Stock, shelf.Goods) - shelf.Goods
		items = append(items, f)
	}
	return items, nil
}

func (f *figures) count(h *history) {
	f.Accepted++
	f.Paid += min(h.paid, 1)
	f.Cancelled += min(h.cancelled, 1)
	f.Shipped += min(h.parcels, 1)
	f.DoubleShipped += max(h.parcels-1, 0)
	f.PaidAndCancelled += btoi(h.paid > 0 && h.cancelled > 0)
	f.Lost += btoi(!h.settled())
	f.Reminded += min(h.reminded, 1)
	f.Untold += btoi(h.told != h.sent || h.parcels > 0 && h.told == (parcel{}))
}

// histories reads all orders with their ledger entries, and for each item the
// most pieces that were out at a time.
func (s *store) histories(ctx context.Context) (byOrder map[string]*history, peaks map[string]int, err error) {
	byOrder, peaks = make(map[string]*history), make(map[string]int)
	of := func(order, item string) *history {
		if byOrder[order] == nil {
			byOrder[order] = &history{item: item}
		}
		return byOrder[order]
	}
	err = s.each(ctx, `SELECT id, item, state FROM orders`, func(id, item, is string) {
		of(id, item).state = state(is)
	})
	if err != nil {
		return nil, nil, err
	}
	out := make(map[string]int)
	err = s.each(ctx, `SELECT order_id, item, entry FROM ledger ORDER BY seq`, func(id, item, entry string) {
		h := of(id, item)
		switch state(entry) {
		case reminded:
			h.reminded++
		case reserved:
			out[item]++
			peaks[item] = max(peaks[item], out[item])
		case paid:
			h.paid++
		case cancelled:
			h.cancelled++
			out[item]--
		case shipped:
			h.parcels++
		}
	})
	if err != nil {
		return nil, nil, err
	}
	err = s.each(ctx, `SELECT o.id, o.item, s.tracking FROM shipments s JOIN orders o ON o.id = s.order_id`,
		func(id, item, number string) { of(id, item).sent = parcel{number} })
	return byOrder, peaks, err
}

func (s *store) each(ctx context.Context, query string, f func(order, item, word string)) error {
	rows, err := s.read.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var order, item, word string
		if err := rows.Scan(&order, &item, &word); err != nil {
			return err
		}
		f(order, item, word)
	}
	return rows.Err()
}

// runFigures are what was counted from the logs of the runs.
type runFigures struct {
	Early   int     `json:"early"` // handed out before they were due
	P50     float64 `json:"lateness_p50_ms"`
	P99     float64 `json:"lateness_p99_ms"`
	Max     float64 `json:"lateness_max_ms"`
	Retries int     `json:"retries"` // runs after one that failed

	// Crashes counts the workers killed, and the runs of tasks that a dead
	// worker had held.
	Crashes int `json:"crashes"`

	runs, takenOver int
	calmMax         float64 // lateness of those that no dead worker had held
}

// review counts the runs, given how many workers were killed.
func review(runs []*run, killed int) runFigures {
	f := runFigures{runs: len(runs), Crashes: killed}
	late := make([]time.Duration, 0, len(runs))
	var calm time.Duration
	for _, r := range runs {
		late = append(late, r.late())
		f.Early += btoi(r.late() < 0)
		f.Retries += btoi(r.Attempt > 1)
		if r.Crashes > 0 {
			f.takenOver++
		} else {
			calm = max(calm, r.late())
		}
	}
	f.Crashes += f.takenOver
	slices.Sort(late)
	f.P50, f.P99, f.Max = ms(rank(late, 0.50)), ms(rank(late, 0.99)), ms(rank(late, 1))
	f.calmMax = ms(calm)
	return f
}

// rank is the smallest value that a share p of the sorted values does not
// exceed: the nearest rank.
func rank(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(int(math.Ceil(p*float64(len(sorted)))), 1)-1]
}

// ms is in milliseconds, to the µs.
func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
