package lock_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A link is the network between one client and its server. It fails on demand;
// its zero value works well.
type link struct {
	refuse  atomic.Bool  // new connections are refused
	deaf    atomic.Bool  // requests vanish
	mute    atomic.Bool  // replies vanish
	scripts atomic.Int32 // scripts sent, also those that vanished

	mu   sync.Mutex   // guards what follows
	fail func() error // fate of the next reply to a script
	due  int32        // how many scripts there are when act is called
	act  func()
}

func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return l.over((&net.Dialer{}).DialContext)(ctx, network, addr)
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// over puts the link between a client and what dial reaches.
func (l *link) over(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if l.refuse.Load() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &linked{Conn: conn, link: l}, nil
	}
}

// heal ends what deaf and mute began.
func (l *link) heal() {
	l.deaf.Store(false)
	l.mute.Store(false)
}

// lose loses the reply to the next script and its connection. First it calls
// then, if any: the script has run, and the client does not know it.
func (l *link) lose(then func()) {
	l.onReply(func() error {
		if then != nil {
			then()
		}
		return io.EOF
	})
}

// delay holds back the reply to the next script.
func (l *link) delay(d time.Duration) {
	l.onReply(func() error {
		<-time.After(d)
		return nil
	})
}

// afterScripts calls act when so many more scripts are sent.
func (l *link) afterScripts(more int32, act func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due, l.act = l.scripts.Load()+more, act
}

func (l *link) sent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.scripts.Add(1) == l.due {
		l.act()
	}
}

func (l *link) onReply(fail func() error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = fail
}

func (l *link) fate() error {
	l.mu.Lock()
	fail := l.fail
	l.fail = nil
	l.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail()
}

type linked struct {
	net.Conn
	link   *link
	script atomic.Bool // the last request was a script
}

func (c *linked) Write(p []byte) (int, error) {
	c.script.Store(bytes.Contains(p, []byte("\neval")))
	if c.script.Load() {
		c.link.sent()
	}
	if c.link.deaf.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *linked) Read(p []byte) (int, error) {
	for {
		n, err := c.Conn.Read(p)
		switch {
		case err != nil:
			return n, err
		case c.link.mute.Load():
			continue
		case !c.script.Load() || bytes.HasPrefix(p, []byte("-NOSCRIPT")):
			return n, nil
		}
		if err := c.link.fate(); err != nil {
			_ = c.Close()
			return 0, err
		}
		return n, nil
	}
}
