package queue_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A link is the network between one client and its server. It fails on demand;
// its zero value works well.
type link struct {
	scripts atomic.Int32 // scripts sent

	mu   sync.Mutex
	fate func() error // what becomes of the next reply to a script
}

func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &linked{Conn: conn, link: l}, nil
}

// lose loses the reply to the next script and its connection: the script has
// run, and the client does not know it.
func (l *link) lose() { l.onReply(func() error { return io.EOF }) }

func (l *link) onReply(fate func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fate = fate
}

func (l *link) next() error {
	l.mu.Lock()
	fate := l.fate
	l.fate = nil
	l.mu.Unlock()
	if fate == nil {
		return nil
	}
	return fate()
}

type linked struct {
	net.Conn
	link   *link
	script atomic.Bool // a script was sent, and no byte of its reply has come
}

func (c *linked) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("*")) { // else it is the rest of a large request
		c.script.Store(bytes.Contains(p[:min(len(p), 32)], []byte("\neval")))
		if c.script.Load() {
			c.link.scripts.Add(1)
		}
	}
	return c.Conn.Write(p)
}

func (c *linked) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil || !c.script.Swap(false) || bytes.HasPrefix(p, []byte("-NOSCRIPT")) {
		return n, err
	}
	if err := c.link.next(); err != nil {
		_ = c.Close()
		return 0, err
	}
	return n, nil
}

// A tap stands between a client and its commands: it keeps a copy of the last
// script's, and can hold one back as a slow network does.
type tap struct {
	hooks

	mu   sync.Mutex
	last []any
	hold bool
}

func (h *tap) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		h.mu.Lock()
		h.last = append([]any(nil), cmd.Args()...)
		hold := h.hold
		h.hold = false
		h.mu.Unlock()
		if hold {
			cmd.SetErr(io.ErrUnexpectedEOF)
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

// holdNext keeps the next script from being sent. Its caller sees a broken
// connection; the script may still be delivered later.
func (h *tap) holdNext() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hold = true
}

// held returns the last script's command.
func (h *tap) held() []any {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.last
}
