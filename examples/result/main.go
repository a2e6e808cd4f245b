// Command result shows a task that reports its progress and brings a result, and
// a caller that waits for it: in one process, on a Redis that lives in it.
//
//	go run ./examples/result
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// ReportArgs say for which shop and month a report is to be made.
type ReportArgs struct {
	Shop  string
	Month string
}

// A Report is what the task brings.
type Report struct {
	Orders int `json:"orders"`
	Cents  int `json:"cents"`
}

// MakeReport is kept for an hour once it is done, so that who asks later finds the
// report too.
var MakeReport = duly.Kind[ReportArgs]{
	Name:   "report.make",
	ID:     func(a ReportArgs) string { return "report:" + a.Shop + ":" + a.Month },
	Retain: time.Hour,
}

// days is how many parts the work has. After each the handler says how far it is.
const days = 30

func makeReport(ctx context.Context, a ReportArgs, d *duly.Delivery) error {
	if a.Shop == "closed" {
		return duly.Bury(errors.New("the shop is closed"))
	}
	var sum Report
	for day := range days {
		sum.Orders += 10
		sum.Cents += 10 * 1999
		err := d.Progress(ctx, float64(day+1)/days)
		if errors.Is(err, duly.ErrLeaseLost) {
			return err // another worker has the task
		}
		time.Sleep(10 * time.Millisecond) // the work
	}
	return d.SetResult(sum)
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) error {
	server, err := miniredis.Run()
	if err != nil {
		return err
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()
	reports, err := queue.New(rdb, "reports", queue.Config{})
	if err != nil {
		return err
	}

	mux := duly.NewMux()
	MakeReport.Handle(mux, makeReport)
	working, stop := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- worker.New(mux, worker.Config{}, reports).Run(working) }()

	err = ask(ctx, out, reports)
	stop()
	return errors.Join(err, <-stopped)
}

// ask is the caller: an HTTP handler, say, or another service.
func ask(ctx context.Context, out io.Writer, reports *queue.Queue) error {
	receipt, err := reports.Enqueue(ctx, MakeReport.Task(ReportArgs{"berlin", "2026-10"}))
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		watch(watching, out, reports, receipt.ID)
	}()
	ended, err := reports.Wait(ctx, receipt.ID)
	stop()
	<-watched
	if err != nil {
		return err
	}
	var report Report
	if err := ended.Decode(&report); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "waited for: %d orders, %d cents\n", report.Orders, report.Cents)

	info, err := reports.Get(ctx, receipt.ID)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "found later: %s, %s\n", info.State, info.Result)

	receipt, err = reports.Enqueue(ctx, MakeReport.Task(ReportArgs{"berlin", "2026-10"}), queue.In(time.Hour))
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "asked again: %s, the one before was %s\n", receipt.Outcome, receipt.State)

	receipt, err = reports.Enqueue(ctx, MakeReport.Task(ReportArgs{"closed", "2026-10"}))
	if err != nil {
		return err
	}
	if ended, err = reports.Wait(ctx, receipt.ID); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "a shop that is closed: %v\n", ended.Decode(&report))
	return nil
}

// watch prints how far a task is whenever it looks and that has changed.
func watch(ctx context.Context, out io.Writer, reports *queue.Queue, id string) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	before := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		info, err := reports.Get(ctx, id)
		if now := string(info.Progress); err == nil && now != "" && now != before {
			_, _ = fmt.Fprintf(out, "progress: %.4s\n", now)
			before = now
		}
	}
}

// Output:
// progress: …
// …
// waited for: 300 orders, 599700 cents
// found later: done, {"orders":300,"cents":599700}
// asked again: added, the one before was done
// a shop that is closed: duly: task "report:closed:2026-10" ended by bury: duly: bury: the shop is closed
