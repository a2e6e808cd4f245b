package lock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
)

// exampleClient stands for a client of your Redis.
func exampleClient() (client *redis.Client, end func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	client = redis.NewClient(&redis.Options{Addr: server.Addr(), MaintNotificationsConfig: plain})
	return client, func() { _ = client.Close(); server.Close() }
}

func ExampleLocker_Do() {
	rdb, end := exampleClient()
	defer end()
	ctx := context.Background()
	locker, err := lock.New(rdb, lock.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}

	err = locker.Do(ctx, "order:42", 10*time.Second, func(ctx context.Context, _ *lock.Lease) error {
		fmt.Println("paying order 42")

		// Whoever else wants the order now has to wait, or is told at once.
		_, err := locker.TryAcquire(ctx, "order:42", time.Second)
		fmt.Println("a second payment is refused:", errors.Is(err, lock.ErrHeld))
		return nil
	})
	fmt.Println("done, error:", err)
	// Output:
	// paying order 42
	// a second payment is refused: true
	// done, error: <nil>
}

// A stock is a store that refuses a writer whose lock has gone to another since:
// it remembers the highest fence that it has seen.
type stock struct {
	phones int
	fence  uint64
}

func (s *stock) set(phones int, fence uint64) error {
	if fence < s.fence {
		return errors.New("a later holder has written")
	}
	s.phones, s.fence = phones, fence
	return nil
}

// A process can stop between looking at its lease and writing. The fence lets
// the store refuse what then comes late.
func ExampleLease_Fence() {
	rdb, end := exampleClient()
	defer end()
	ctx := context.Background()
	locker, err := lock.New(rdb, lock.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	shop := &stock{phones: 10}

	paused, _ := locker.Acquire(ctx, "phones", 10*time.Second)
	rdb.Del(ctx, "duly:lock:{phones}") // as if its time were over
	next, _ := locker.Acquire(ctx, "phones", 10*time.Second)

	fmt.Println("the next holder:", shop.set(9, next.Fence()))
	fmt.Println("the paused one:", shop.set(10, paused.Fence()))
	fmt.Println("phones:", shop.phones)
	// Output:
	// the next holder: <nil>
	// the paused one: a later holder has written
	// phones: 9
}

func ExampleGuarded() {
	rdb, end := exampleClient()
	defer end()
	ctx := context.Background()
	locker, err := lock.New(rdb, lock.Config{Prefix: "{shop}:"})
	if err != nil {
		fmt.Println(err)
		return
	}
	// KEYS[1] is the lock, ARGV[1] the token of one's own lease, if any, and
	// ARGV[2] the TTL in ms that a lock without one is given.
	sell := lock.Guarded(`return {'sold', redis.call('DECR', KEYS[2])}`)
	keys := []string{"{shop}:phones", "{shop}:left"}
	rdb.Set(ctx, keys[1], 10, 0)

	reply, _ := sell.Run(ctx, rdb, keys, "", 30_000)
	fmt.Println(reply)

	lease, _ := locker.Acquire(ctx, "phones", 10*time.Second)
	reply, _ = sell.Run(ctx, rdb, keys, "", 30_000)
	fmt.Println(word(reply))
	reply, _ = sell.Run(ctx, rdb, keys, lease.Token(), 30_000)
	fmt.Println(reply)
	// Output:
	// [sold 9]
	// locked
	// [sold 8]
}
