package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A redisServer is a redis-server process of this program's own, on loopback TCP
// and without persistence.
type redisServer struct {
	addr  string
	dir   string
	cmd   *exec.Cmd
	admin *redis.Client // of one connection, which no system uses
}

// startRedis starts a server and waits until it answers.
func startRedis(ctx context.Context) (*redisServer, error) {
	dir, err := os.MkdirTemp("", "dulybench")
	if err != nil {
		return nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	s := &redisServer{addr: net.JoinHostPort("127.0.0.1", port), dir: dir}
	s.cmd = exec.Command("redis-server", //nolint:gosec // a port and a directory of this program's own
		"--port", port, "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no", "--loglevel", "warning",
		"--slowlog-log-slower-than", strconv.Itoa(int(slowlogFrom.Microseconds())), "--slowlog-max-len", "100000")
	s.cmd.SysProcAttr = ownGroup()
	if err := s.cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	s.admin = newRedisClient(s.addr)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", s.addr, time.Second)
		if err == nil {
			_ = conn.Close()
			if err = s.admin.Ping(ctx).Err(); err == nil {
				return s, nil
			}
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			s.stop()
			return nil, fmt.Errorf("redis-server does not answer: %w", errors.Join(err, ctx.Err()))
		}
	}
}

// stop ends the server. There is nothing of it to keep.
func (s *redisServer) stop() {
	_ = s.admin.Close()
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

// clear removes all that a system has stored.
func (s *redisServer) clear(ctx context.Context) error { return s.admin.FlushAll(ctx).Err() }

// info reads one number of the server's INFO.
func (s *redisServer) info(ctx context.Context, section, field string) (float64, error) {
	text, err := s.admin.Info(ctx, section).Result()
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == field {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("no %s in the server's INFO %s", field, section)
}

// cpu is what the thread that runs commands has used so far.
func (s *redisServer) cpu(ctx context.Context) (time.Duration, error) {
	user, err := s.info(ctx, "cpu", "used_cpu_user_main_thread")
	if err != nil {
		return 0, err
	}
	system, err := s.info(ctx, "cpu", "used_cpu_sys_main_thread")
	return time.Duration((user + system) * float64(time.Second)), err
}

// spent is how long the server has been in each command so far, by the clock on
// the wall. What runs inside a script counts for itself and for the script.
func (s *redisServer) spent(ctx context.Context) (map[string]time.Duration, error) {
	text, err := s.admin.Info(ctx, "commandstats").Result()
	if err != nil {
		return nil, err
	}
	spent := make(map[string]time.Duration)
	for line := range strings.Lines(text) {
		name, rest, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "cmdstat_"), ":")
		for _, field := range strings.Split(rest, ",") {
			if digits, ok := strings.CutPrefix(field, "usec="); ok {
				us, err := strconv.ParseInt(digits, 10, 64)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
				spent[name] = time.Duration(us) * time.Microsecond
			}
		}
	}
	return spent, nil
}

// memory is what the server has allocated, its clients' buffers aside.
func (s *redisServer) memory(ctx context.Context) (float64, error) {
	used, err := s.info(ctx, "memory", "used_memory")
	if err != nil {
		return 0, err
	}
	clients, err := s.info(ctx, "memory", "mem_clients_normal")
	return used - clients, err
}

const (
	slowlogFrom = time.Millisecond      // what the server's SLOWLOG keeps
	slow        = 10 * time.Millisecond // what counts as slow
)

// slowest counts the commands that took longer than slow since the last forget,
// and returns the longest that the log has; below slowlogFrom it is zero.
func (s *redisServer) slowest(ctx context.Context) (count int, longest time.Duration, err error) {
	entries, err := s.admin.SlowLogGet(ctx, -1).Result()
	for _, e := range entries {
		switch strings.ToLower(e.Args[0]) {
		case "flushall", "slowlog", "config", "info":
			continue // this program's own
		}
		if longest = max(longest, e.Duration); e.Duration > slow {
			count++
		}
	}
	return count, longest, err
}

// forget empties the SLOWLOG.
func (s *redisServer) forget(ctx context.Context) error {
	return s.admin.Do(ctx, "slowlog", "reset").Err()
}

func freePort(ctx context.Context) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
