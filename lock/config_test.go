package lock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
)

func TestCheckName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, name string
		valid      bool
	}{
		{"one byte", "a", true},
		{"punctuation and spaces", "order:42/the first \"one\" %s*?", true},
		{"more than ASCII", "注文-42-ñ-😀", true},
		{"the longest", strings.Repeat("x", lock.MaxName), true},
		{"empty", "", false},
		{"over 512 bytes", strings.Repeat("x", lock.MaxName+1), false},
		{"over 512 bytes in fewer characters", strings.Repeat("é", 257), false},
		{"an opening brace", "a{b", false},
		{"a closing brace", "a}b", false},
		{"a hash tag", "{a}", false},
		{"NUL", "a\x00b", false},
		{"a newline", "a\n", false},
		{"DEL", "a\x7f", false},
		{"a C1 control", "a\u0085b", false},
		{"invalid UTF-8", "a\xffb", false},
		{"a surrogate half", "\xed\xa0\x80", false},
	} {
		err := lock.CheckName(c.name)
		if c.valid && err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		if !c.valid {
			wants(t, err, lock.ErrInvalid)
		}
	}
}

// unreachable is a client whose use fails the test.
func unreachable(t *testing.T) *redis.Client {
	t.Helper()
	l := new(link)
	l.refuse.Store(true)
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: l.dial, MaintNotificationsConfig: plain})
	client.AddHook(before{act: func() { t.Error("a command was sent") }})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestBadArgumentsAreRefusedBeforeTheNetwork(t *testing.T) {
	t.Parallel()
	locker, err := lock.New(unreachable(t), lock.Config{})
	must(t, err)
	ctx := t.Context()
	for _, c := range []struct {
		name, says string
		ttl        time.Duration
	}{
		{"", "empty name", time.Minute},
		{"{a}", "brace", time.Minute},
		{"a\x00", "control character", time.Minute},
		{"a\xff", "not UTF-8", time.Minute},
		{strings.Repeat("x", 513), "513 bytes, over 512", time.Minute},
		{"a", "TTL 0s is under 10ms", 0},
		{"a", "TTL -1s is under 10ms", -time.Second},
		{"a", "TTL 9.999999ms is under 10ms", lock.MinTTL - 1},
	} {
		_, try := locker.TryAcquire(ctx, c.name, c.ttl)
		_, wait := locker.Acquire(ctx, c.name, c.ttl)
		do := locker.Do(ctx, c.name, c.ttl, nil)
		for _, err := range []error{try, wait, do} {
			wants(t, err, lock.ErrInvalid)
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%q for %v: %v does not say %q", c.name, c.ttl, err, c.says)
			}
		}
	}
}

func TestShortestTTL(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, r *rig) {
		eventually(t, "a lock is had for the shortest TTL", func() bool {
			return release(r.locker.TryAcquire(t.Context(), "a", lock.MinTTL)) == nil
		})
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	client := unreachable(t)
	for _, c := range []struct {
		cfg  lock.Config
		says string // empty: it is valid
	}{
		{lock.Config{}, ""},
		{lock.Config{Prefix: "shop:"}, ""},
		{lock.Config{Prefix: "shop:{orders}:"}, ""},
		{lock.Config{Prefix: "{orders}:", FenceKey: "shop:{orders}:fence"}, ""},
		{lock.Config{Prefix: "half{open"}, ""},
		{lock.Config{PollMin: 300 * time.Millisecond}, ""},
		{lock.Config{PollMin: time.Second}, "PollMax 1s"},
		{lock.Config{PollMax: 501 * time.Millisecond}, "PollMax ≤ 500ms"},
		{lock.Config{PollMax: 500 * time.Millisecond}, ""},
		{lock.Config{PollMax: time.Millisecond}, ""},
		{lock.Config{PollMin: time.Millisecond, PollMax: time.Millisecond, AdoptTTL: lock.MinTTL}, ""},
		{lock.Config{PollMax: 1<<63 - 1}, "PollMax"},
		{lock.Config{PollMin: -1}, "PollMin"},
		{lock.Config{PollMin: time.Microsecond}, "PollMin"},
		{lock.Config{PollMin: 2 * time.Millisecond, PollMax: time.Millisecond}, "PollMax"},
		{lock.Config{ReplicaAcks: -1}, "ReplicaAcks"},
		{lock.Config{ReplicaAcks: 17}, "ReplicaAcks"},
		{lock.Config{Owner: "a\n"}, "Owner"},
		{lock.Config{Owner: strings.Repeat("x", lock.MaxOwner+1)}, "Owner"},
		{lock.Config{PollMax: -1}, "PollMax"},
		{lock.Config{AdoptTTL: -1}, "AdoptTTL"},
		{lock.Config{AdoptTTL: lock.MinTTL - 1}, "AdoptTTL"},
		{lock.Config{FenceKey: "fence"}, "FenceKey"},
		{lock.Config{FenceKey: "{fence}"}, "FenceKey"},
		{lock.Config{Prefix: "half{open", FenceKey: "fence"}, "FenceKey"},
		{lock.Config{Prefix: "{orders}:", FenceKey: "fence"}, "FenceKey"},
		{lock.Config{Prefix: "{orders}:", FenceKey: "{order}:fence"}, "FenceKey"},
		{lock.Config{Prefix: "shop{}:"}, "empty hash tag"},
		{lock.Config{Prefix: "shop{}:{orders}"}, "empty hash tag"},
	} {
		locker, err := lock.New(client, c.cfg)
		if c.says == "" {
			if err != nil || locker == nil {
				t.Errorf("%+v: %v", c.cfg, err)
			}
			continue
		}
		wants(t, err, lock.ErrInvalid)
		if locker != nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v does not name %s", c.cfg, err, c.says)
		}
	}
}

// instrumented is a client inside a struct that is not a pointer.
type instrumented struct{ redis.UniversalClient }

func TestNilClients(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]redis.UniversalClient{
		"nil":             nil,
		"*redis.Client":   (*redis.Client)(nil),
		"*ClusterClient":  (*redis.ClusterClient)(nil),
		"*redis.Ring":     (*redis.Ring)(nil),
		"pointer wrapper": (*instrumented)(nil),
	} {
		locker, err := lock.New(client, lock.Config{})
		wants(t, err, lock.ErrInvalid)
		if locker != nil {
			t.Errorf("%s: got a locker", name)
		}
	}
	_, err := lock.New(instrumented{unreachable(t)}, lock.Config{})
	must(t, err)
}
