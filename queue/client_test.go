package queue_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock/redistest"
)

// wrapped is a client as a program may wrap its own, to count or to trace.
type wrapped struct{ redis.UniversalClient }

func TestEveryVerbWorksWithEachKindOfClient(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	clients := map[string]redis.UniversalClient{
		"RESP2": redis.NewClient(&redis.Options{Addr: server.Addr, Protocol: 2, MaintNotificationsConfig: plain}),
		"contexts honoured, no retries": redis.NewClient(&redis.Options{
			Addr: server.Addr, ContextTimeoutEnabled: true, MaxRetries: -1, MaintNotificationsConfig: plain,
		}),
		"one connection": redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 1, MaintNotificationsConfig: plain}),
		"ring":           redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": server.Addr}}),
		"wrapped by value": wrapped{redis.NewUniversalClient(&redis.UniversalOptions{
			Addrs: []string{server.Addr}, MaintNotificationsConfig: plain,
		})},
	}
	for name, client := range clients {
		t.Run(name, func(t *testing.T) { // not in parallel: they share the queue
			t.Cleanup(func() { _ = client.Close() })
			everyVerb(t, client)
		})
	}
}
