package main

import (
	"context"
	"fmt"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

// stockAudit counts the stock while it is being sold, over and over. All workers
// have it in their schedules, and whichever is free runs it: there is no leader,
// and none is missed when one of them is killed.
var stockAudit = duly.Kind[struct{}]{
	Name:    "stock.audit",
	ID:      func(struct{}) string { return stockAuditID },
	Timeout: 10 * time.Second,
}

const (
	stockAuditID = "stock.audit"
	auditEvery   = 500 * time.Millisecond
)

// schedule is what a worker of the shop keeps in its queue.
func schedule() []worker.Recurring {
	return []worker.Recurring{worker.Every("@every "+auditEvery.String(), stockAudit.Task(struct{}{}))}
}

// findings are those of the stock audits.
type findings struct {
	Audits   int `json:"audits"`
	Breaches int `json:"audit_breaches"`
}

// auditStock counts all items at one moment and notes what it has found for a
// tick: an item breaches if what is on its shelf and what is out are not the goods
// that there were. A run that is repeated, for its worker died, notes nothing more.
func (s *store) auditStock(ctx context.Context, tick time.Time) error {
	shelves, err := s.shelves(ctx) // one statement, so all of one moment
	if err != nil {
		return fmt.Errorf("audit the stock: %w", err)
	}
	breaches := 0
	for _, x := range shelves {
		breaches += btoi(x.Stock < 0 || x.Stock+x.Reserved+x.Paid+x.Shipped != x.Goods)
	}
	_, err = s.write.ExecContext(ctx, `INSERT INTO audits (tick, breaches) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
		tick.UnixMicro(), breaches)
	return wrap("audit the stock", err)
}

// findings adds up what the stock audits have found.
func (s *store) findings(ctx context.Context) (f findings, err error) {
	err = s.read.QueryRowContext(ctx, `SELECT COUNT(*), CAST(COALESCE(SUM(breaches), 0) AS BIGINT) FROM audits`).
		Scan(&f.Audits, &f.Breaches)
	return f, wrap("read the stock audits", err)
}
