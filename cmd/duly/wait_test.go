package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// ends brings tasks to their ends in a queue of a real Redis.
func ends(t *testing.T) (server *redistest.Server, q *queue.Queue) {
	t.Helper()
	server = redistest.Start(t)
	q, err := queue.New(server.Client(), "orders", queue.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return server, q
}

func end(t *testing.T, q *queue.Queue, how duly.Settlement) {
	t.Helper()
	ds, _, err := q.Pop(t.Context(), 1, time.Hour)
	if err != nil || len(ds) != 1 {
		t.Fatalf("popped %d tasks, %v", len(ds), err)
	}
	how.Delivery = ds[0]
	if err := q.Progress(t.Context(), ds[0], []byte("0.5")); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Settle(t.Context(), []duly.Settlement{how}); err != nil {
		t.Fatal(err)
	}
}

func TestTheStatusOfWaitTellsHowTheTaskEnded(t *testing.T) {
	t.Parallel()
	server, q := ends(t)
	addr := server.Addr
	rdb, boom := server.Client(), errors.New("boom")
	for id, c := range map[string]struct {
		how    duly.Settlement
		status int
		out    string
		errs   string
	}{
		"ack":    {duly.Settlement{Action: duly.Acked, Result: []byte(`{ "a": "\u009b" }`)}, 0, `{"a":"\u009b"}` + "\n", ""},
		"bare":   {duly.Settlement{Action: duly.Acked}, 0, "", ""},
		"drop":   {duly.Settlement{Action: duly.Dropped, Err: boom}, 3, "", "boom"},
		"tricks": {duly.Settlement{Action: duly.Dropped, Err: errors.New("\x1b[2J\nboom")}, 3, "", `\x1b[2J\nboom`},
		"bury":   {duly.Settlement{Action: duly.Buried, Err: boom}, 4, "", "boom"},
		"cancel": {duly.Settlement{}, 5, "", "cancel"},
		"repeat": {duly.Settlement{Action: duly.Repeated, At: time.Now().Add(time.Hour), Err: boom}, 6, "", "boom"},
	} {
		if _, err := q.Enqueue(t.Context(), duly.Task{ID: id, Kind: "k"}); err != nil {
			t.Fatal(err)
		}
		type answer struct {
			status    int
			out, errs string
		}
		answers := make(chan answer)
		go func() {
			status, out, errs := invoke(t, addr, "", "-redis", "redis://"+addr, "wait", "orders", id)
			answers <- answer{status, out, errs}
		}()
		for rdb.ZScore(t.Context(), "duly:{orders}:wanted", id).Err() != nil {
			time.Sleep(time.Millisecond)
		}
		if c.how.Action == "" {
			if _, err := q.Cancel(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		} else {
			end(t, q, c.how)
		}
		got := <-answers
		if got.status != c.status || got.out != c.out || !strings.Contains(got.errs, c.errs) {
			t.Errorf("%s: %+v", id, got)
		}
	}
}

func TestWaitForNothingOrForTooLongHasStatus1(t *testing.T) {
	t.Parallel()
	server, q := ends(t)
	addr := server.Addr
	if _, err := q.Enqueue(t.Context(), duly.Task{ID: "a", Kind: "k"}); err != nil {
		t.Fatal(err)
	}
	url := "redis://" + addr
	if status, _, errs := invoke(t, addr, "", "-redis", url, "wait", "orders", "b"); status != 1 || !strings.Contains(errs, `no task "b"`) {
		t.Errorf("a task that is not there: %d, %s", status, errs)
	}
	if status, _, errs := invoke(t, addr, "", "-redis", url, "wait", "orders", "a", "-timeout", "50ms"); status != 1 || !strings.Contains(errs, "deadline") {
		t.Errorf("a task that does not end: %d, %s", status, errs)
	}
}

func TestDoneTasksAreShownWithTheirResults(t *testing.T) {
	t.Parallel()
	server, q := ends(t)
	addr := server.Addr
	url := "redis://" + addr
	if status, _, errs := invoke(t, addr, "", "-redis", url, "enqueue", "orders", "k", "-id", "a", "-retain", "1h"); status != 0 {
		t.Fatal(errs)
	}
	end(t, q, duly.Settlement{Action: duly.Acked, Result: []byte(`{"sum":42}`)})
	for _, args := range [][]string{{"get", "orders", "a"}, {"list", "orders", "-state", "done"}} {
		status, out, _ := invoke(t, addr, "", append([]string{"-redis", url}, args...)...)
		if status != 0 || !strings.Contains(out, `result: {"sum":42}`) || !strings.Contains(out, "progress: 0.5") {
			t.Errorf("duly %v: status %d, %s", args, status, out)
		}
		if status, out, _ = invoke(t, addr, "", append([]string{"-json", "-redis", url}, args...)...); status != 0 || !strings.Contains(out, `"result":{"sum":42}`) {
			t.Errorf("duly -json %v: status %d, %s", args, status, out)
		}
	}
	if status, out, _ := invoke(t, addr, "", "-json", "-redis", url, "wait", "orders", "a"); status != 0 || out != `{"ended":"ack","id":"a","result":{"sum":42}}`+"\n" {
		t.Errorf("wait: %d, %s", status, out)
	}
	if status, out, _ := invoke(t, addr, "", "-json", "-redis", url, "stats", "orders"); status != 0 || !strings.Contains(out, `"done":1`) {
		t.Errorf("stats: %d, %s", status, out)
	}
}
