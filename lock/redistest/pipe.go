package redistest

import (
	"bytes"
	"net"
	"sync"
)

// A pipe is one end of a net.Pipe whose writer does not wait for the reader. On
// a net.Pipe a pipeline of more than the server's buffer hangs: both ends write.
type pipe struct {
	net.Conn
	written chan []byte
	close   func()
	closed  chan struct{}
}

func newPipe(end net.Conn) *pipe {
	p := &pipe{Conn: end, written: make(chan []byte, 100), closed: make(chan struct{})}
	p.close = sync.OnceFunc(func() { close(p.closed) })
	go p.pump()
	return p
}

func (p *pipe) pump() {
	defer p.close()
	for {
		select {
		case b := <-p.written:
			if _, err := p.Conn.Write(b); err != nil {
				return
			}
		case <-p.closed:
			return
		}
	}
}

func (p *pipe) Write(b []byte) (int, error) {
	select {
	case p.written <- bytes.Clone(b):
		return len(b), nil
	case <-p.closed:
		return 0, net.ErrClosed
	}
}

func (p *pipe) Close() error {
	p.close()
	return p.Conn.Close()
}
