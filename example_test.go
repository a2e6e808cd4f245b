package duly_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/queue"
	"github.com/dulyhq/duly/worker"
)

// README:

type CancelArgs struct {
	OrderID string `json:"order_id"`
}

// A kind of task, declared once for both sides: its name, its arguments, and
// what follows from them.
var CancelOrder = duly.Kind[CancelArgs]{
	Name:    "order.cancel",
	ID:      func(a CancelArgs) string { return "cancel:" + a.OrderID }, // a second enqueue is no second task
	LockKey: func(a CancelArgs) string { return "order:" + a.OrderID },
	Timeout: 10 * time.Second,
}

func run(ctx context.Context, rdb redis.UniversalClient, shop *Shop) error {
	orders, err := queue.New(rdb, "orders", queue.Config{})
	if err != nil {
		return err
	}

	// The shop: an order that is not paid in time is to be cancelled.
	for _, id := range []string{"41", "42"} {
		if _, err := orders.Enqueue(ctx, CancelOrder.Task(CancelArgs{id}), queue.In(shop.PayWithin)); err != nil {
			return err
		}
	}

	// Order 42 is paid. The payment and the task exclude each other by the
	// order's lock, and the fence lets the database refuse whoever comes late.
	err = orders.Locker().Do(ctx, "order:42", 10*time.Second, func(ctx context.Context, l *lock.Lease) error {
		return shop.Pay(ctx, "42", l.Fence())
	})
	if err != nil {
		return err
	}
	if _, err := orders.Cancel(ctx, "cancel:42"); err != nil {
		return err
	}

	// The worker: handlers by kind, run until ctx ends.
	mux := duly.NewMux()
	CancelOrder.Handle(mux, func(ctx context.Context, a CancelArgs, d *duly.Delivery) error {
		return shop.CancelIfUnpaid(ctx, a.OrderID, d.Fence) // nobody else has the order's lock
	})
	return worker.New(mux, worker.Config{Concurrency: 64}, orders).Run(ctx)
}

// End of README.

// Shop is the application's own.
type Shop struct {
	PayWithin time.Duration
	fences    map[string]uint64
	cancelled chan<- string
}

var errLate = errors.New("fenced off")

// Pay records a payment.
func (s *Shop) Pay(_ context.Context, id string, fence uint64) error {
	if fence < s.fences[id] {
		return errLate
	}
	s.fences[id] = fence
	fmt.Println("paid", id)
	return nil
}

// CancelIfUnpaid cancels an order.
func (s *Shop) CancelIfUnpaid(_ context.Context, id string, fence uint64) error {
	if fence < s.fences[id] {
		return errLate
	}
	s.fences[id] = fence
	fmt.Println("cancelled", id)
	close(s.cancelled)
	return nil
}

// Two orders, one of them paid in time.
func Example() {
	redisServer, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer redisServer.Close()
	rdb := redis.NewClient(&redis.Options{Addr: redisServer.Addr()})
	defer func() { _ = rdb.Close() }()

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	cancelled := make(chan string)
	go func() {
		<-cancelled
		stop()
	}()
	shop := &Shop{PayWithin: 50 * time.Millisecond, fences: make(map[string]uint64), cancelled: cancelled}
	if err := run(ctx, rdb, shop); err != nil {
		fmt.Println(err)
	}
	// Output:
	// paid 42
	// cancelled 41
}

func TestReadmeShowsTheProgramThatCompiles(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(source), "// README:\n\n")
	program, _, _ := strings.Cut(rest, "\n// End of README.")
	if !strings.Contains(string(readme), "```go\n"+program+"```") {
		t.Error("README.md does not show the program of example_test.go")
	}
}
