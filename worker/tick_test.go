package worker_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/worker"
)

// A clock that was stepped back must not bring a tick again.
func TestNoTickIsRepeatedByAClockThatIsBehind(t *testing.T) {
	t.Parallel()
	due := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	d := &duly.Delivery{Task: duly.Task{ID: "tick", Every: "@hourly", Grace: time.Minute}, Due: due}
	behind := due.Add(-time.Second)
	end := worker.EndTick(duly.Settlement{Delivery: d, Action: duly.Acked}, behind)
	if want := due.Add(time.Hour); end.Action != duly.Repeated || !end.At.Equal(want) || end.Err != nil || end.Delivery != d {
		t.Errorf("got %+v, want it repeated at %v", end, want)
	}
	if skip, late := worker.SkipTick(d, behind); late {
		t.Errorf("skipped: %+v", skip)
	}
}

func TestWhatDoesNotRecurIsSettledAsItWas(t *testing.T) {
	t.Parallel()
	d := &duly.Delivery{Task: duly.Task{ID: "once"}, Due: time.Unix(1, 0)}
	for _, action := range []duly.Action{duly.Acked, duly.Dropped, duly.Retried, duly.Released, duly.Buried} {
		how := duly.Settlement{Delivery: d, Action: action, In: time.Hour, Err: errBoom}
		if end := worker.EndTick(how, time.Now()); !reflect.DeepEqual(end, how) {
			t.Errorf("%s became %+v", action, end)
		}
	}
	if _, late := worker.SkipTick(d, time.Now()); late {
		t.Error("it is skipped")
	}
}
