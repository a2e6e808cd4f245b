package chaos

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A relay is an address on loopback that leads to a server, which can be changed.
type relay struct {
	addr   string
	listen net.Listener

	mu     sync.Mutex // guards what follows
	target string     // "" refuses
	conns  map[net.Conn]struct{}
	all    sync.WaitGroup
}

// startRelay starts a relay, which ends with the test.
func startRelay(tb testing.TB, target string) *relay {
	tb.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	must(tb, err)
	l := &relay{addr: listen.Addr().String(), listen: listen, target: target, conns: make(map[net.Conn]struct{})}
	l.all.Go(l.serve)
	tb.Cleanup(func() {
		_ = listen.Close()
		l.point("")
		l.all.Wait()
	})
	return l
}

// point has all who come from now on led to a target, and breaks the links of others.
// Without a target nobody gets through.
func (l *relay) point(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
	for conn := range l.conns {
		_ = conn.Close()
	}
}

func (l *relay) serve() {
	for {
		conn, err := l.listen.Accept()
		if err != nil {
			return
		}
		l.all.Go(func() { l.carry(conn) })
	}
}

func (l *relay) carry(from net.Conn) {
	defer func() { _ = from.Close() }()
	l.mu.Lock()
	target := l.target
	l.mu.Unlock()
	to, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	l.mu.Lock()
	gone := l.target != target
	if !gone {
		l.conns[from], l.conns[to] = struct{}{}, struct{}{}
	}
	l.mu.Unlock()
	if gone {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_, _ = way[0].Close(), way[1].Close()
		})
	}
	both.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, from)
	delete(l.conns, to)
}
