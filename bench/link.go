package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A link is a TCP proxy that delays bytes and does not throttle them: what is
// written back to back arrives back to back, that much later. It stands for a
// network between a program and its server.
type link struct {
	addr     string
	upstream string
	delay    time.Duration // of each direction
	listener net.Listener

	mu    sync.Mutex
	conns []net.Conn
	ended bool
	wg    sync.WaitGroup
}

// A parcel is bytes on their way.
type parcel struct {
	bytes []byte
	due   time.Time
}

// startLink opens a proxy to upstream.
func startLink(ctx context.Context, upstream string, delay time.Duration) (*link, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{addr: listener.Addr().String(), upstream: upstream, delay: delay, listener: listener}
	l.wg.Go(l.accept)
	return l, nil
}

func (l *link) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.DialTimeout("tcp", l.upstream, 5*time.Second)
		if err != nil {
			_ = near.Close()
			continue
		}
		l.mu.Lock()
		if l.ended {
			l.mu.Unlock()
			_, _ = near.Close(), far.Close()
			return
		}
		l.conns = append(l.conns, near, far)
		l.wg.Go(func() { l.carry(far, near) })
		l.wg.Go(func() { l.carry(near, far) })
		l.mu.Unlock()
	}
}

// carry moves bytes from one connection to another until either ends, then
// closes both.
func (l *link) carry(to, from net.Conn) {
	parcels := make(chan parcel, 4096)
	l.wg.Go(func() {
		defer func() { _, _ = to.Close(), from.Close() }()
		var failed error
		for p := range parcels {
			if failed == nil {
				nap(time.Until(p.due))
				_, failed = to.Write(p.bytes)
			}
			if failed != nil {
				_ = from.Close() // ends the reading; what is left is dropped
			}
		}
	})
	defer close(parcels)
	for {
		b := make([]byte, 32<<10)
		n, err := from.Read(b)
		if n > 0 {
			parcels <- parcel{b[:n], time.Now().Add(l.delay)}
		}
		if err != nil {
			return
		}
	}
}

// stop breaks every connection.
func (l *link) stop() error {
	err := l.listener.Close()
	l.mu.Lock()
	l.ended = true
	for _, c := range l.conns {
		if e := c.Close(); e != nil && !errors.Is(e, net.ErrClosed) && !errors.Is(e, io.EOF) {
			err = errors.Join(err, e)
		}
	}
	l.mu.Unlock()
	l.wg.Wait()
	return err
}
