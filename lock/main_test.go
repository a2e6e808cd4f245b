package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/redistest"
)

func TestMain(m *testing.M) {
	if os.Getenv(processEnv) != "" {
		os.Exit(processMain())
	}
	goleak.VerifyTestMain(suite{m})
}

// suite ends the servers that the tests share before goroutines are counted.
type suite struct{ m *testing.M }

func (s suite) Run() int {
	redis.SetLogger(silent{})
	code := s.m.Run()
	for _, end := range slices.Backward(ends.all) {
		end()
	}
	return code
}

// silent keeps go-redis from logging each connection that a test breaks.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// untilEnd is a test whose clean-ups wait for the end of all tests.
type untilEnd struct{ testing.TB }

func (untilEnd) Cleanup(end func()) {
	ends.Lock()
	defer ends.Unlock()
	ends.all = append(ends.all, end)
}

var ends struct {
	sync.Mutex
	all []func() // guarded
}

// A backend is a running Redis, open for clients on any link.
type backend func(*link) redis.UniversalClient

// A kind is a kind of Redis. Each test about Redis runs on every one.
type kind struct {
	start func(testing.TB) backend

	sync.Mutex
	running backend // guarded: the one that tests share
}

var kinds = map[string]*kind{
	"mini":    {start: openMini},
	"redis":   {start: openRedis},
	"cluster": {start: openCluster},
}

// share returns a Redis for keys of the test's own: a cluster takes two seconds
// to start.
func (k *kind) share(tb testing.TB) backend {
	k.Lock()
	defer k.Unlock()
	if k.running == nil {
		k.running = k.start(untilEnd{tb})
	}
	return k.running
}

func openMini(tb testing.TB) backend {
	m, _ := redistest.Mini(tb)
	m.ClockTTL(true) // else times to live stand still
	return func(l *link) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Addr: m.Addr(), Dialer: l.dial, DialerRetries: 1, MaintNotificationsConfig: plain})
	}
}

func openRedis(tb testing.TB) backend {
	s := redistest.Start(tb)
	return func(l *link) redis.UniversalClient {
		return redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket, Dialer: l.dial, DialerRetries: 1, MaintNotificationsConfig: plain})
	}
}

func openCluster(tb testing.TB) backend {
	addrs := redistest.Cluster(tb).Options().Addrs
	return func(l *link) redis.UniversalClient {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, Dialer: l.dial, DialerRetries: 1, MaintNotificationsConfig: plain})
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
			if src := fmt.Sprint(cmd.Args()[1]); !strings.HasPrefix(src, "#!") {
				cmd.Args()[1] = "#!lua\n" + src
			}
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

// A rig is what a test works with: lockers on links that it can make to fail,
// and a client of the same Redis on a link that does not.
type rig struct {
	redis.UniversalClient
	open   backend
	cfg    lock.Config
	link   *link // of locker
	locker *lock.Locker
}

// onEach runs a test on each kind of Redis.
func onEach(t *testing.T, test func(*testing.T, *rig)) {
	t.Helper()
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newRig(t, kind.share(t)))
		})
	}
}

var rigs atomic.Int64

func newRig(t *testing.T, open backend) *rig {
	t.Helper()
	r := &rig{open: open, cfg: lock.Config{Prefix: fmt.Sprintf("{%s#%d}:", t.Name(), rigs.Add(1))}}
	r.UniversalClient = r.client(t, new(link))
	r.locker, r.link = r.newLocker(t, r.cfg)
	return r
}

func (r *rig) client(t *testing.T, l *link) redis.UniversalClient {
	t.Helper()
	client := r.open(l)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newLocker returns a locker as another process would have it.
func (r *rig) newLocker(t *testing.T, cfg lock.Config) (*lock.Locker, *link) {
	t.Helper()
	l := new(link)
	client := r.client(t, l)
	must(t, client.Ping(t.Context()).Err()) // a connection is there before the link is made to fail
	locker, err := lock.New(client, cfg)
	must(t, err)
	return locker, l
}

func (r *rig) key(name string) string { return r.cfg.Prefix + name }

// take takes a free lock.
func (r *rig) take(t *testing.T, name string, ttl time.Duration) *lock.Lease {
	t.Helper()
	lease, err := r.locker.TryAcquire(t.Context(), name, ttl)
	must(t, err)
	return lease
}

// value is what is stored at the key of a name, or empty.
func (r *rig) value(t *testing.T, name string) string {
	t.Helper()
	value, err := r.Get(t.Context(), r.key(name)).Result()
	if !errors.Is(err, redis.Nil) {
		must(t, err)
	}
	return value
}

// left is the time to live of a name's key.
func (r *rig) left(t *testing.T, name string) time.Duration {
	t.Helper()
	left, err := r.PTTL(t.Context(), r.key(name)).Result()
	must(t, err)
	return left
}

// put stores a value at the key of a name, as a client without this package may.
func (r *rig) put(t *testing.T, name, value string, ttl time.Duration) {
	t.Helper()
	must(t, r.Set(t.Context(), r.key(name), value, ttl).Err())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wants fails the test unless err matches each of the targets.
func wants(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Fatalf("got error %v, want one that matches %q", err, target)
		}
	}
}

// gaveUp fails the test unless err is that of a waiter whose context was cancelled,
// whether or not it had an answer by then.
func gaveUp(t *testing.T, err error) {
	t.Helper()
	wants(t, err, context.Canceled)
	if !errors.Is(err, lock.ErrHeld) && !errors.Is(err, lock.ErrUnknownOutcome) {
		t.Fatalf("got error %v, want one that says held or unknown", err)
	}
}

// soon is a context for what would otherwise wait for ever when it fails.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// finished waits until a lease or a context has ended.
func finished(t *testing.T, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(40 * time.Second): // the longest lease that a test lets expire is one of 30 s of virtual time
		t.Fatal("it has not ended")
	}
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not in 10 s: %s", what)
		}
	}
}
