package locktest

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// A link is the network between one process and its Redis.
type link struct {
	mu    sync.Mutex
	state state              // guarded by mu, as is conns
	conns map[*wire]struct{} // those that are open
}

func newLink() *link { return &link{conns: make(map[*wire]struct{})} }

type state int

const (
	whole state = iota
	broken
	silent
)

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// over puts the link between a client and what dial reaches.
func (l *link) over(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.state == broken {
			_ = conn.Close()
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		w := &wire{Conn: conn, link: l}
		l.conns[w] = struct{}{}
		return w, nil
	}
}

// set changes the state. Only silence leaves connections open: those that were
// silent have lost requests, and would wait for the replies.
func (l *link) set(s state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s != l.state && s != silent {
		for w := range l.conns {
			_ = w.Conn.Close()
		}
		clear(l.conns)
	}
	l.state = s
}

func (l *link) silent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == silent
}

// A wire is one connection over a link.
type wire struct {
	net.Conn
	link *link
}

func (w *wire) Write(p []byte) (int, error) {
	if w.link.silent() {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

// Read lets no reply through that came when the link was silent already.
func (w *wire) Read(p []byte) (int, error) {
	for {
		n, err := w.Conn.Read(p)
		if err != nil || !w.link.silent() {
			return n, err
		}
	}
}

func (w *wire) Close() error {
	w.link.mu.Lock()
	delete(w.link.conns, w)
	w.link.mu.Unlock()
	return w.Conn.Close()
}
