package chaos

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock/redistest"
)

// A master is killed while its replica follows, sentinels put that in its place, and
// workers and callers find it by themselves.
func TestWorkGoesOnAfterSentinelsFailOver(t *testing.T) {
	r := begin(t, "failover by sentinels")
	rounds := pick(1, 3, 50)
	master := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	replica := follow(t, master.Addr)
	watch := startSentinels(t, 3, master.Addr)
	watch.know(1)
	c := r.assemble(process{
		Redis: place{Addrs: watch.addrs, Master: watchedName}, Lease: 500 * time.Millisecond, MaxCrashes: 1_000_000,
	})
	c.mustHire()
	c.mustHire()
	ts := newTries()
	locks := r.takeLocks(c.rdb)
	var gaps []span
	c.during(ts, 4*time.Millisecond, r.mixed, func() {
		for i := range rounds {
			if i > 0 {
				replica = follow(t, master.Addr)
				watch.know(i + 1)
			}
			time.Sleep(time.Duration(200+r.rnd.IntN(200)) * time.Millisecond)
			gap := span{from: replicated(t, master, "probe")}
			gap.fault = time.Now().UnixMicro()
			master.Kill()
			r.fault("master killed", 1)
			promoted := replica.Client()
			eventually(t, "the replica is the master", 20*time.Second, func() bool {
				role, err := promoted.Do(t.Context(), "ROLE").Slice()
				return err == nil && role[0] == "master"
			})
			gap.to = time.Now().UnixMicro()
			r.measure(fmt.Sprintf("round %d, replica promoted after, ms", i+1), float64(gap.to-gap.fault)/1000)
			gaps, master = append(gaps, gap), replica
			c.goesOn(gap, 20*time.Second)
		}
	})
	c.drain(1, time.Minute)
	c.failedOver(ts, gaps, locks(), 0)
}

// watchedName is that of the master of sentinels.
const watchedName = "chaos"

// sentinels are processes that watch a master.
type sentinels struct {
	t     *testing.T
	addrs []string
}

// startSentinels starts n sentinels, which end with the test. Half a second of silence
// is enough for them, and two must agree.
func startSentinels(t *testing.T, n int, master string) *sentinels {
	t.Helper()
	s := &sentinels{t: t}
	host, port, err := net.SplitHostPort(master)
	must(t, err)
	for range n {
		own := freePort(t)
		dir := t.TempDir()
		conf := filepath.Join(dir, "sentinel.conf")
		text := fmt.Sprintf(`port %d
bind 127.0.0.1
dir %s
loglevel warning
logfile %s
sentinel monitor %[4]s %[5]s %[6]s 2
sentinel down-after-milliseconds %[4]s 500
sentinel failover-timeout %[4]s 3000
`, own, dir, filepath.Join(dir, "log"), watchedName, host, port)
		must(t, os.WriteFile(conf, []byte(text), 0o600))
		cmd := exec.Command("redis-server", conf, "--sentinel")
		must(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		s.addrs = append(s.addrs, net.JoinHostPort("127.0.0.1", strconv.Itoa(own)))
	}
	return s
}

// know waits until all sentinels know each other and so many replicas.
func (s *sentinels) know(replicas int) {
	s.t.Helper()
	for _, addr := range s.addrs {
		one := redis.NewSentinelClient(&redis.Options{Addr: addr})
		eventually(s.t, "sentinels know each other and the replicas", 30*time.Second, func() bool {
			others, err := one.Sentinels(s.t.Context(), watchedName).Result()
			if err != nil || len(others) < len(s.addrs)-1 {
				return false
			}
			copies, err := one.Replicas(s.t.Context(), watchedName).Result()
			return err == nil && len(copies) >= replicas
		})
		_ = one.Close()
	}
}

// freePort finds a port that nobody has.
func freePort(tb testing.TB) int {
	tb.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	must(tb, err)
	defer func() { _ = listen.Close() }()
	_, port, err := net.SplitHostPort(listen.Addr().String())
	must(tb, err)
	n, err := strconv.Atoi(port)
	must(tb, err)
	return n
}
