package main

import (
	"errors"
	"testing"
	"time"
)

func TestTheStockAuditFindsWhatIsMissingAndWhatIsTooMuch(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, []item{{"phone", 2}, {"earphones", 5}}, func(t *testing.T, _ place, s *store) {
		sold(t, s, "a", "ann", "phone")
		sold(t, s, "b", "bob", "phone")
		if err := errors.Join(s.pay(t.Context(), "a", 1), shipping(s)(t.Context(), "a", 2)); err != nil {
			t.Fatal(err)
		}
		for n, c := range []struct {
			change string
			found  int
		}{
			{`UPDATE items SET stock = stock WHERE id = 'phone'`, 0},
			{`UPDATE items SET stock = stock + 1 WHERE id = 'phone'`, 1},
			{`UPDATE items SET stock = stock - 1 WHERE id = 'earphones'`, 2},
			{`UPDATE items SET stock = -1, goods = 1 WHERE id = 'phone'`, 2},
		} {
			plant(t, s, c.change, `DELETE FROM audits`)
			err := s.auditStock(t.Context(), time.UnixMicro(int64(n)))
			if f, err2 := s.findings(t.Context()); f != (findings{1, c.found}) || errors.Join(err, err2) != nil {
				t.Errorf("after %s: %+v, %v; want %d breaches", c.change, f, errors.Join(err, err2), c.found)
			}
		}
	})
}

func TestATickIsAuditedOnceThoughItsRunIsRepeated(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, []item{{"phone", 2}}, func(t *testing.T, _ place, s *store) {
		tick := time.Now()
		for _, at := range []time.Time{tick, tick, tick.Add(auditEvery)} {
			if err := s.auditStock(t.Context(), at); err != nil {
				t.Fatal(err)
			}
		}
		if f, err := s.findings(t.Context()); f != (findings{Audits: 2}) || err != nil {
			t.Errorf("%+v, %v; want two audits", f, err)
		}
	})
}
