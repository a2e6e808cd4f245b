package main

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// newCountedClient returns a client like newRedisClient's that counts what it
// sends in sent.
func newCountedClient(addr string, sent *atomic.Int64) *redis.Client {
	rdb := newRedisClient(addr)
	rdb.AddHook(countedWire{sent})
	return rdb
}

// countedWire counts on the wire, for a hook on commands sees neither those of a
// subscription nor those with which a connection begins.
type countedWire struct{ sent *atomic.Int64 }

func (w countedWire) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
			return &countedConn{TCPConn: tcp, sent: w.sent}, nil
		}
		return conn, err
	}
}

func (countedWire) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (countedWire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A countedConn counts the commands written to it. It is a TCPConn for the rest,
// since go-redis looks at the socket of an idle connection before it uses it.
type countedConn struct {
	*net.TCPConn
	sent *atomic.Int64
	commands
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.sent.Add(c.count(p))
	return c.TCPConn.Write(p)
}

// commands finds the commands in a stream that comes in pieces. A command is an
// array of strings: a line '*' with their count, and for each a line '$' with its
// length before it (redis.io, 'Redis serialization protocol specification').
type commands struct {
	line []byte // the beginning of a line that has not ended
	skip int    // bytes of a string still to come
}

func (c *commands) count(p []byte) (n int64) {
	for len(p) > 0 {
		if c.skip > 0 {
			step := min(c.skip, len(p))
			c.skip, p = c.skip-step, p[step:]
			continue
		}
		end := bytes.IndexByte(p, '\n') + 1
		if end == 0 {
			c.line = append(c.line, p...)
			return n
		}
		c.line = append(c.line, p[:end]...)
		p = p[end:]
		if c.line[0] == '*' {
			n++
		} else {
			length, _ := strconv.Atoi(string(c.line[1 : len(c.line)-2]))
			c.skip = length + 2 // and its line break
		}
		c.line = c.line[:0]
	}
	return n
}
