package queue_test

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/dulyhq/duly/lock/redistest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("rapid.checks", "20") // histories of a property; the command line may say otherwise
	goleak.VerifyTestMain(suite{m})
}

// suite ends the servers that the tests share before goroutines are counted.
type suite struct{ m *testing.M }

func (s suite) Run() int {
	code := s.m.Run()
	for _, end := range shared.ends {
		end()
	}
	return code
}

// A backend is one kind of Redis, open for clients on any link.
type backend func(*link) redis.UniversalClient

// kinds are the kinds of Redis that every verb is tested on.
var kinds = map[string]func(testing.TB) backend{
	"mini":    openMini,
	"redis":   openRedis,
	"cluster": openCluster,
}

func openMini(tb testing.TB) backend {
	m, _ := redistest.Mini(tb)
	return dialing("tcp", m.Addr())
}

func openRedis(tb testing.TB) backend {
	return dialing("unix", redistest.Start(tb).Socket)
}

func dialing(network, addr string) backend {
	return func(l *link) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Network: network, Addr: addr, Dialer: l.dial, MaintNotificationsConfig: plain})
	}
}

func openCluster(tb testing.TB) backend {
	addrs := redistest.Cluster(tb).Options().Addrs
	return func(l *link) redis.UniversalClient {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Dialer: l.dial, MaintNotificationsConfig: plain})
		client.AddHook(shebang{})
		return client
	}
}

// plain keeps a client from asking for notifications that the servers do not know.
var plain = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

// shebang makes scripts declare themselves, so that a cluster refuses one that
// touches a slot other than that of its keys. Without it Redis lets it pass.
type shebang struct{ hooks }

func (shebang) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		switch cmd.Name() {
		case "evalsha":
			cmd.SetErr(noScript{})
			return cmd.Err()
		case "eval":
			cmd.Args()[1] = "#!lua\n" + fmt.Sprint(cmd.Args()[1])
		}
		return next(ctx, cmd)
	}
}

// hooks is the part of a redis.Hook that changes nothing.
type hooks struct{}

func (hooks) DialHook(next redis.DialHook) redis.DialHook { return next }
func (hooks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT No matching script." }
func (noScript) RedisError()   {}

// shared holds the servers that tests share, each with a queue of its own, since
// a cluster takes two seconds to start.
var shared struct {
	sync.Mutex
	open map[string]backend
	ends []func()
}

// untilEnd is a test whose clean-ups wait for the end of all tests.
type untilEnd struct{ testing.TB }

func (untilEnd) Cleanup(end func()) { shared.ends = append([]func(){end}, shared.ends...) }

func share(tb testing.TB, kind string) backend {
	tb.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.open == nil {
		shared.open = make(map[string]backend)
	}
	if shared.open[kind] == nil {
		shared.open[kind] = kinds[kind](untilEnd{tb})
	}
	return shared.open[kind]
}

// onEach runs a test on each kind of Redis.
func onEach(t *testing.T, test func(*testing.T, *rig)) {
	t.Helper()
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, newRig(t, share(t, kind)))
		})
	}
}

// onRedis returns a rig on the shared Redis, for what miniredis cannot show.
func onRedis(tb testing.TB) *rig {
	tb.Helper()
	return newRig(tb, share(tb, "redis"))
}

// onOwnRedis returns a rig on a Redis of its own, for what would disturb others.
func onOwnRedis(tb testing.TB, args ...string) (*rig, *redistest.Server) {
	tb.Helper()
	s := redistest.Start(tb, args...)
	return newRig(tb, dialing("unix", s.Socket)), s
}
