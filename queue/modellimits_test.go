package queue_test

import (
	"math"

	"pgregory.net/rapid"

	"github.com/dulyhq/duly/queue"
)

// limit sets limits, as often none. The intervals of the rates are hours, as all
// times are.
func (s *machine) limit(rt *rapid.T) {
	var l queue.Limits
	if rapid.Bool().Draw(rt, "running") {
		l.Running = rapid.IntRange(1, 3).Draw(rt, "most")
	}
	if rapid.Bool().Draw(rt, "rate") {
		l.Rate = 1 / rapid.SampledFrom([]float64{3600, 5400}).Draw(rt, "interval")
		l.Burst = rapid.IntRange(1, 3).Draw(rt, "burst")
	}
	check(rt, s.q.SetLimits(rt.Context(), l))
	s.m.setLimits(l)
	got, err := s.q.Limits(rt.Context())
	check(rt, err)
	same(rt, "limits", got, l)
}

// room is how many of n tasks the limits allow.
func (m *model) room(n int, now span) int {
	if m.limits.Running > 0 {
		room := m.limits.Running
		for _, t := range m.tasks {
			if t.state == queue.Leased {
				room--
			}
		}
		n = min(n, room)
	}
	if interval, ahead := m.rate(now); interval > 0 {
		n = min(n, m.limits.Burst-int((ahead+interval-1)/interval))
	}
	return max(n, 0)
}

// rate is the time between two tasks, and how far ahead of it they are, in ns: at
// most by a burst, from now on.
func (m *model) rate(now span) (interval, ahead int64) {
	if m.limits.Rate == 0 {
		return 0, 0
	}
	interval = int64(math.Ceil(1e9 / m.limits.Rate))
	m.tat = min(m.tat, now.lo*1000+int64(m.limits.Burst)*interval)
	return interval, max(m.tat-now.lo*1000, 0)
}

func (m *model) charge(n int, now span) {
	if interval, ahead := m.rate(now); interval > 0 && n > 0 {
		m.tat = now.lo*1000 + ahead + int64(n)*interval
	}
}

func (m *model) setLimits(l queue.Limits) {
	if m.limits = l; l.Rate == 0 {
		m.tat = 0
	}
}
