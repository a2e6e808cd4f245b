package redistest

import (
	"net"
	"sync"
)

// A pipe is one end of a net.Pipe whose writer does not wait for the reader. On
// a net.Pipe a pipeline of more than the server's buffer hangs: both ends write.
type pipe struct {
	net.Conn

	mu      sync.Mutex // guards what follows
	waiting []byte
	writing bool
	err     error // of the last write
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	p.waiting = append(p.waiting, b...)
	if !p.writing {
		p.writing = true
		go p.drain()
	}
	return len(b), nil
}

func (p *pipe) drain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.err == nil && len(p.waiting) > 0 {
		b := p.waiting
		p.waiting = nil
		p.mu.Unlock()
		_, err := p.Conn.Write(b)
		p.mu.Lock()
		p.err = err
	}
	p.writing = false
}
