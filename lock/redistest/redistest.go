// Package redistest gives tests a Redis: a real redis-server of their own, a
// one-node cluster, or miniredis in memory.
//
// Start runs the redis-server found on the PATH on a unix socket in a temporary
// directory and ends it with the test. Where there is none the test is skipped,
// or fails if DULY_REQUIRE_REDIS=1 is set. Mini and Virtual need no server; they
// are for speed and for virtual time, not for proof: miniredis differs from
// Redis in precision, in memory limits, in clusters and in what it costs.
package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// A Server is a redis-server process of one test.
type Server struct {
	// Addr is host:port on loopback, and Socket the path of a unix socket.
	Addr, Socket string

	tb   testing.TB
	args []string
	cmd  *exec.Cmd
}

// Start starts a redis-server with the given extra arguments, without
// persistence unless they ask for it.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("DULY_REQUIRE_REDIS") == "1" {
			tb.Fatal("DULY_REQUIRE_REDIS=1, and no redis-server on the PATH")
		}
		tb.Skip("skipped: needs redis-server on the PATH")
	}
	dir, err := os.MkdirTemp("", "duly") // t.TempDir can be too long for a socket
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	port := freePort(tb)
	s := &Server{
		Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Socket: filepath.Join(dir, "redis.sock"), tb: tb,
		args: append([]string{
			"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--unixsocket", filepath.Join(dir, "redis.sock"),
			"--dir", dir, "--save", "", "--loglevel", "warning",
		}, args...),
	}
	s.run()
	tb.Cleanup(s.Kill)
	return s
}

// Client returns a client over the unix socket, closed with the test.
func (s *Server) Client() *redis.Client {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket, MaintNotificationsConfig: quiet()})
	s.tb.Cleanup(func() { _ = client.Close() })
	return client
}

// Kill ends the server as a crash does. It may be called again.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// Restart kills the server and starts it with the same arguments.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	s.run()
}

// Signal sends the process a signal: SIGSTOP makes it hang.
func (s *Server) Signal(sig syscall.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatal(err)
	}
}

func (s *Server) run() {
	s.tb.Helper()
	_ = os.Remove(s.Socket)
	s.cmd = exec.Command("redis-server", s.args...) //nolint:gosec // the test's own arguments
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket, MaintNotificationsConfig: quiet()})
	defer func() { _ = client.Close() }()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(2 * time.Millisecond) {
		conn, err := net.Dial("unix", s.Socket)
		if err == nil {
			_ = conn.Close()
			err = client.Ping(context.Background()).Err()
			if err == nil || redis.HasErrorPrefix(err, "NOAUTH") {
				return
			}
		}
		if time.Now().After(deadline) {
			s.tb.Fatalf("redis-server does not answer: %v", err)
		}
	}
}

// Cluster starts a one-node cluster that owns every slot, and returns a cluster
// client of it.
func Cluster(tb testing.TB) *redis.ClusterClient {
	tb.Helper()
	s := Start(tb, "--cluster-enabled", "yes")
	node := s.Client()
	ctx := context.Background()
	if err := node.ClusterAddSlotsRange(ctx, 0, 16383).Err(); err != nil {
		tb.Fatal(err)
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr}, MaintNotificationsConfig: quiet()})
	tb.Cleanup(func() { _ = client.Close() })
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		err := client.Set(ctx, "ready", "1", 0).Err()
		if err == nil {
			return client
		}
		if time.Now().After(deadline) {
			tb.Fatalf("the cluster is not ready: %v", err)
		}
	}
}

// Mini starts miniredis and returns it with a client, both ended with the test.
func Mini(tb testing.TB) (*miniredis.Miniredis, *redis.Client) {
	tb.Helper()
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		tb.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: m.Addr(), MaintNotificationsConfig: quiet()})
	tb.Cleanup(func() {
		_ = client.Close()
		m.Close()
	})
	return m, client
}

// Virtual starts miniredis without a port and returns a dialer of clients, all of
// which end with the test. Its clock is time.Now, for TIME and for times to live
// alike, so inside a bubble of testing/synctest it is the bubble's: a key is gone
// exactly when its time is over, and a day costs nothing. Call it inside the
// bubble then, with the bubble's tb. Outside, the clock may move during a script,
// which in Redis it does not.
func Virtual(tb testing.TB) (dial func() *redis.Client) {
	tb.Helper()
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	tb.Cleanup(m.Close)
	return func() *redis.Client {
		client := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:1", MaxRetries: -1, ReadTimeout: -1, WriteTimeout: -1, MaintNotificationsConfig: quiet(),
			PoolSize: 4096, // who waits for a connection does so by a timer that clients in and out of bubbles share
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				conn, err := m.Dial()
				if err != nil {
					return nil, err
				}
				return &pipe{Conn: conn}, nil
			},
		})
		tb.Cleanup(func() { _ = client.Close() })
		return client
	}
}

// freePort finds a port that leaves room for a cluster's bus, which takes the
// one 10,000 above it.
func freePort(tb testing.TB) int {
	tb.Helper()
	for {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		_ = l.Close()
		addr, ok := l.Addr().(*net.TCPAddr)
		if !ok {
			tb.Fatal(fmt.Errorf("unexpected address %v", l.Addr()))
		}
		if addr.Port <= 65535-10_000 {
			return addr.Port
		}
	}
}

// quiet keeps the client from asking for notifications that a plain Redis does
// not know.
func quiet() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
