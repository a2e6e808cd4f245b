package locktest_test

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/lock/locktest"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{})
	goleak.VerifyTestMain(m)
}

// silent keeps go-redis from logging each connection that a test breaks.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// configs are those whose keys differ.
var configs = map[string]lock.Config{
	"a tag for each name":   {},
	"one tag for all names": {Prefix: "shop:{orders}:"},
}

func inMemory(tb testing.TB, cfg lock.Config) locktest.Harness {
	fake := locktest.New(tb, cfg)
	return locktest.Harness{Open: fake.Another, Nodes: []redis.UniversalClient{fake.Client()}}
}

func TestFakePassesKit(t *testing.T) {
	t.Parallel()
	locktest.TestLocker(t, func(t *testing.T) locktest.Harness { return inMemory(t, lock.Config{}) })
}

func TestFakePassesKitInBubble(t *testing.T) {
	t.Parallel()
	for name, cfg := range configs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, c := range locktest.Cases() {
				t.Run(c.Name, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) { c.Run(t, inMemory(t, cfg)) })
				})
			}
		})
	}
}

func TestKitRefusesHalfAHarness(t *testing.T) {
	t.Parallel()
	whole := inMemory(t, lock.Config{})
	for name, h := range map[string]locktest.Harness{
		"no Open":   {Nodes: whole.Nodes},
		"no Nodes":  {Open: whole.Open},
		"no locker": {Open: func() *lock.Locker { return nil }, Nodes: whole.Nodes},
	} {
		r := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			locktest.Cases()[0].Run(r, h)
		}()
		if <-done; !r.failed {
			t.Errorf("%s: the kit ran", name)
		}
	}
}

// A recorder is a test whose failure is no failure of the one that it lies in.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Fatal(...any) {
	r.failed = true
	runtime.Goexit()
}
