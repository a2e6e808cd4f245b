package queue_test

import (
	"testing"
	"time"

	"github.com/dulyhq/duly"
)

// Of a recurring task it is the run that goes on whose end is waited for; also if the
// task is changed meanwhile, as a deployment does, or cancelled and brought back.
func TestWhoWaitsForARunIsToldThoughTheTaskIsChangedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, meanwhile := range map[string]func(*testing.T, *rig){
		"unchanged": func(t *testing.T, r *rig) { r.recur(t, hourly("x", "1"), time.Hour) },
		"changed":   func(t *testing.T, r *rig) { r.recur(t, hourly("x", "2"), time.Hour) },
		"brought back": func(t *testing.T, r *rig) {
			_, err := r.q.Cancel(t.Context(), "x")
			must(t, err)
			r.recur(t, hourly("x", "1"), time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := onRedis(t)
			r.recur(t, hourly("x", "1"), 0)
			d := r.popOne(t, "x")
			w := r.wait(t, t.Context(), 1, "x")
			meanwhile(t, r)
			lost, err := r.q.Settle(t.Context(), []duly.Settlement{
				{Delivery: d, Action: duly.Repeated, At: d.Popped.Add(time.Hour), Result: []byte("7")},
			})
			must(t, err)
			equal(t, "lost", len(lost), 0)
			select {
			case <-w.over:
				equal(t, "ended", w.ended.Action, duly.Acked)
			case <-time.After(8 * time.Second): // it has looked again by then
				t.Errorf("the run was done; the waiter waits on, and the task is %s for %v", r.get(t, "x").State, time.Until(r.get(t, "x").At))
				_, err := r.q.Cancel(t.Context(), "x")
				must(t, err)
				<-w.over
			}
		})
	}
}
