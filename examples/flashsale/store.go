package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// A state is where an order stands. The ledger's entries have the same names.
type state string

// The states: reserved, then paid and shipped, or cancelled.
const (
	reserved  state = "reserved"
	paid      state = "paid"
	shipped   state = "shipped"
	cancelled state = "cancelled"
)

// reminded is an entry of the ledger that changes no state.
const reminded state = "reminded"

// A debt is what an order owes to the queue.
type debt string

// The debts.
const (
	owesNothing  debt = ""
	owesDeadline debt = "deadline" // the tasks about its time to pay
	owesShip     debt = "ship"
)

// Why the store changes nothing.
var (
	errSoldOut = errors.New("sold out")
	errNoOrder = errors.New("no such order")
	errNoItem  = errors.New("no such item")

	// errStale: a newer fence has been seen. Whoever held this one has been
	// superseded, and must not act.
	errStale = errors.New("superseded by a newer fence")
)

// A stateError says that an order is not in the state that a change needs.
type stateError struct{ state state }

func (e *stateError) Error() string { return "the order is " + string(e.state) }

// An order is one piece for one buyer.
type order struct {
	ID    string    `json:"id"`
	Buyer string    `json:"buyer"`
	Item  string    `json:"item"`
	State state     `json:"state"`
	PayBy time.Time `json:"pay_by"`
	owes  debt
}

// A store keeps the shop's tables. Who decides is always a single conditional
// statement in a transaction, never what was read before it.
type store struct {
	write, read *sql.DB // the same for PostgreSQL
}

func (s *store) close() error {
	if s.read == s.write {
		return s.write.Close()
	}
	return errors.Join(s.read.Close(), s.write.Close())
}

// place takes a piece off the shelf and writes the order, with its debt, in one
// transaction. A buyer who has an order for this item gets that one, and old is
// true. Otherwise errSoldOut.
func (s *store) place(ctx context.Context, o order) (got order, old bool, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		if err := one(tx.ExecContext(ctx, `UPDATE items SET stock = stock - 1 WHERE id = $1 AND stock > 0`, o.Item)); err != nil {
			return err
		}
		if err := one(tx.ExecContext(ctx, `INSERT INTO orders (id, buyer, item, state, pay_by, owes)
			VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING`,
			o.ID, o.Buyer, o.Item, reserved, o.PayBy.UnixMicro(), owesDeadline)); err != nil {
			return err
		}
		return note(ctx, tx, o.ID, reserved, 0)
	})
	if !errors.Is(err, errUnmoved) {
		o.State, o.owes = reserved, owesDeadline
		return o, false, err
	}
	got, err = s.scan(s.read.QueryRowContext(ctx, columns+`WHERE buyer = $1 AND item = $2 AND state <> 'cancelled'`, o.Buyer, o.Item))
	if errors.Is(err, errNoOrder) {
		err = errSoldOut
	}
	return got, true, err
}

// pay takes the money for a reserved order. From then on it owes a shipment.
func (s *store) pay(ctx context.Context, id string, fence uint64) error {
	return s.tx(ctx, func(tx *sql.Tx) error {
		if err := move(ctx, tx, id, reserved, paid, owesShip, fence); err != nil {
			return err
		}
		return note(ctx, tx, id, paid, fence)
	})
}

// remind notes that the buyer of a reserved order was reminded to pay.
func (s *store) remind(ctx context.Context, id string, fence uint64) error {
	return s.tx(ctx, func(tx *sql.Tx) error {
		err := one(tx.ExecContext(ctx, `UPDATE orders SET fence = $1 WHERE id = $2 AND state = 'reserved' AND fence <= $1`, fence, id))
		if err != nil {
			return why(ctx, tx, id, fence, err)
		}
		return note(ctx, tx, id, reminded, fence)
	})
}

// cancel ends a reserved order and puts its piece back on the shelf. The shelf
// comes first, as in place: one order of locks cannot deadlock, and the lock on
// the item's row puts the ledger's entries of an item in the order of commits.
func (s *store) cancel(ctx context.Context, id string, fence uint64) error {
	return s.tx(ctx, func(tx *sql.Tx) error {
		err := one(tx.ExecContext(ctx, `UPDATE items SET stock = stock + 1
			WHERE id = (SELECT item FROM orders WHERE id = $1)`, id))
		switch {
		case errors.Is(err, errUnmoved):
			return errNoOrder
		case err != nil:
			return err
		}
		if err := move(ctx, tx, id, reserved, cancelled, owesNothing, fence); err != nil {
			return err // and the piece is not back
		}
		return note(ctx, tx, id, cancelled, fence)
	})
}

// ship lets the parcel of a paid order leave. One that has left stays the only
// one and is returned: that is no error, for a retry whose first answer was lost
// is to succeed.
func (s *store) ship(ctx context.Context, id string, p parcel, fence uint64) (parcel, error) {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		err := one(tx.ExecContext(ctx, `INSERT INTO shipments (order_id, tracking, at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
			id, p.Tracking, time.Now().UnixMicro()))
		if err != nil {
			return err
		}
		if err := move(ctx, tx, id, paid, shipped, owesNothing, fence); err != nil {
			return err
		}
		return note(ctx, tx, id, shipped, fence)
	})
	if errors.Is(err, errUnmoved) {
		return s.parcel(ctx, id)
	}
	return p, err
}

// parcel reads the parcel of an order, or errNoParcel.
func (s *store) parcel(ctx context.Context, id string) (parcel, error) {
	var p parcel
	err := s.read.QueryRowContext(ctx, `SELECT tracking FROM shipments WHERE order_id = $1`, id).Scan(&p.Tracking)
	if errors.Is(err, sql.ErrNoRows) {
		err = errNoParcel
	}
	return p, err
}

// move changes an order's state for the holder of a fence. If it cannot, the
// error says why.
func move(ctx context.Context, tx *sql.Tx, id string, from, to state, owes debt, fence uint64) error {
	err := one(tx.ExecContext(ctx, `UPDATE orders SET state = $1, owes = $2, fence = $3
		WHERE id = $4 AND state = $5 AND fence <= $3`, to, owes, fence, id, from))
	return why(ctx, tx, id, fence, err)
}

// why makes of errUnmoved the reason for which an order was not changed:
// errNoOrder, errStale or a *stateError.
func why(ctx context.Context, tx *sql.Tx, id string, fence uint64, err error) error {
	if !errors.Is(err, errUnmoved) {
		return err
	}
	var is state
	var seen uint64
	err = tx.QueryRowContext(ctx, `SELECT state, fence FROM orders WHERE id = $1`, id).Scan(&is, &seen)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return errNoOrder
	case err != nil:
		return err
	case seen > fence:
		return fmt.Errorf("%w: %d after %d", errStale, fence, seen)
	}
	return &stateError{is}
}

// note appends to the ledger.
func note(ctx context.Context, tx *sql.Tx, id string, entry state, fence uint64) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO ledger (order_id, item, entry, fence, at)
		SELECT id, item, $2, $3, $4 FROM orders WHERE id = $1`, id, entry, fence, time.Now().UnixMicro())
	return err
}

const columns = `SELECT id, buyer, item, state, pay_by, owes FROM orders `

// order reads one order, or errNoOrder.
func (s *store) order(ctx context.Context, id string) (order, error) {
	return s.scan(s.read.QueryRowContext(ctx, columns+`WHERE id = $1`, id))
}

func (s *store) scan(row interface{ Scan(...any) error }) (order, error) {
	var o order
	var payBy int64
	err := row.Scan(&o.ID, &o.Buyer, &o.Item, &o.State, &payBy, &o.owes)
	if errors.Is(err, sql.ErrNoRows) {
		return order{}, errNoOrder
	}
	o.PayBy = time.UnixMicro(payBy)
	return o, err
}

// owing reads up to limit orders that owe tasks, the earliest to pay first.
func (s *store) owing(ctx context.Context, limit int) ([]order, error) {
	rows, err := s.read.QueryContext(ctx, columns+`WHERE owes <> '' ORDER BY pay_by LIMIT $1`, limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var orders []order
	for rows.Next() {
		o, err := s.scan(rows)
		if err != nil {
			return nil, err
		}
		orders = append(orders, o)
	}
	return orders, rows.Err()
}

// settled clears the debts of orders as they were read. What an order has come
// to owe since stays.
func (s *store) settled(ctx context.Context, orders []order) error {
	return s.tx(ctx, func(tx *sql.Tx) error {
		for _, o := range orders {
			if _, err := tx.ExecContext(ctx, `UPDATE orders SET owes = '' WHERE id = $1 AND owes = $2`, o.ID, o.owes); err != nil {
				return err
			}
		}
		return nil
	})
}

// A shelf is an item and its orders by state, all of one moment.
type shelf struct {
	Item                               string
	Goods, Stock                       int
	Reserved, Paid, Shipped, Cancelled int
	Owing                              int // orders that owe tasks
}

// shelves counts every item's orders, the scarcest item first.
func (s *store) shelves(ctx context.Context) ([]shelf, error) {
	rows, err := s.read.QueryContext(ctx, `SELECT i.id, i.goods, i.stock,
			COUNT(*) FILTER (WHERE o.state = 'reserved'), COUNT(*) FILTER (WHERE o.state = 'paid'),
			COUNT(*) FILTER (WHERE o.state = 'shipped'), COUNT(*) FILTER (WHERE o.state = 'cancelled'),
			COUNT(*) FILTER (WHERE o.owes <> '')
		FROM items i LEFT JOIN orders o ON o.item = i.id
		GROUP BY i.id, i.goods, i.stock ORDER BY i.goods, i.id`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []shelf
	for rows.Next() {
		var x shelf
		if err := rows.Scan(&x.Item, &x.Goods, &x.Stock, &x.Reserved, &x.Paid, &x.Shipped, &x.Cancelled, &x.Owing); err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	return all, rows.Err()
}

// tx runs f in a transaction.
func (s *store) tx(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback() // what went wrong is err
		return err
	}
	return tx.Commit()
}

// errUnmoved: a conditional statement found nothing to change.
var errUnmoved = errors.New("nothing to change")

// one wants a statement to have changed a row.
func one(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	n, err := result.RowsAffected()
	if err == nil && n == 0 {
		err = errUnmoved
	}
	return err
}
