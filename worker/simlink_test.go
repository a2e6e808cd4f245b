package worker_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"
)

var errCut = errors.New("the link is cut")

// A simLink is the network between a client and its Redis. Its faults come when the
// plan says.
type simLink struct {
	mu    sync.Mutex // guards what follows
	conns map[*simConn]bool
	down  bool
	dead  bool   // it stays down
	fate  string // of the next script: "lose" its reply, or "cut" before it is sent
	of    string // the verb whose script that is to be; "" for any
	verb  string // of the script that is on its way
}

// client returns a client over the link, of the Redis of another.
func (l *simLink) client(base *redis.Client) *redis.Client {
	opts := *base.Options()
	dial := opts.Dialer
	opts.MaxRetries, opts.ReadTimeout, opts.WriteTimeout = -1, -1, -1 // as given, for what is read has the defaults
	opts.DialerRetries = 1                                            // else a call outlasts the end of an outage, and the others wait for it
	l.conns = make(map[*simConn]bool)
	opts.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.down {
			return nil, errCut
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &simConn{Conn: conn, link: l}
		l.conns[c] = true
		return c, nil
	}
	return redis.NewClient(&opts)
}

// set cuts the link, or mends it.
func (l *simLink) set(down bool) {
	l.mu.Lock()
	l.down = down || l.dead
	l.mu.Unlock()
	if down {
		l.reset()
	}
}

// kill cuts the link for good.
func (l *simLink) kill() {
	l.mu.Lock()
	l.dead = true
	l.mu.Unlock()
	l.set(true)
}

func (l *simLink) isDown() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.down
}

// reset closes all connections.
func (l *simLink) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Conn.Close()
	}
	clear(l.conns)
}

func (l *simLink) next(fate, of string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fate, l.of = fate, of
}

func (l *simLink) doing(verb string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.verb = verb
}

// take reports whether that is the fate of a script that comes by, once.
func (l *simLink) take(fate string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fate != fate || l.of != "" && l.of != l.verb {
		return false
	}
	l.fate = ""
	return true
}

type simConn struct {
	net.Conn
	link *simLink

	mu     sync.Mutex
	script bool // one was sent, and no byte of its reply has come
}

func (c *simConn) Write(p []byte) (int, error) {
	if script := bytes.HasPrefix(p, []byte("*")) && bytes.Contains(p[:min(len(p), 32)], []byte("\neval")); script {
		if c.link.take("cut") {
			_ = c.Close()
			return 0, errCut
		}
		c.mu.Lock()
		c.script = true
		c.mu.Unlock()
	}
	return c.Conn.Write(p)
}

func (c *simConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	script := c.script
	c.script = false
	c.mu.Unlock()
	if err == nil && script && !bytes.HasPrefix(p, []byte("-NOSCRIPT")) && c.link.take("lose") {
		_ = c.Close()
		return 0, io.EOF
	}
	return n, err
}

func (c *simConn) Close() error {
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}
