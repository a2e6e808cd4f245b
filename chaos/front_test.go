package chaos

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// A front stands before a server and counts what comes. Its address stays.
type front struct {
	tb       testing.TB
	to, addr string

	mu    sync.Mutex // guards what follows
	mood  mood
	moved *sync.Cond // the mood has changed
	ln    net.Listener
	conns map[net.Conn]bool
	came  calls
}

// A mood is what a front does with what comes.
type mood int

const (
	open    mood = iota // passes it on
	silent              // takes it, keeps it, and says nothing until it is open again
	slammed             // accepts connections and resets them
	closed              // refuses connections
)

// calls are what has come: connections, and commands by their names.
type calls struct {
	connections int
	commands    map[string]int
}

// asked are the commands but for those that greet.
func (c calls) asked() (n int) {
	for name, times := range c.commands {
		if name != "hello" && name != "client" {
			n += times
		}
	}
	return n
}

func newFront(tb testing.TB, to string) *front {
	tb.Helper()
	f := &front{tb: tb, to: to, addr: "127.0.0.1:0", conns: make(map[net.Conn]bool)}
	f.moved = sync.NewCond(&f.mu)
	f.be(open)
	tb.Cleanup(func() { f.be(closed) })
	return f
}

// be changes the mood, and forgets what came before.
func (f *front) be(m mood) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mood, f.came = m, calls{commands: make(map[string]int)}
	f.moved.Broadcast()
	if m == closed || m == slammed {
		for conn := range f.conns {
			_ = conn.Close()
		}
	}
	switch {
	case m == closed && f.ln != nil:
		_ = f.ln.Close()
		f.ln = nil
	case m != closed && f.ln == nil:
		ln, err := net.Listen("tcp", f.addr)
		if err != nil {
			f.tb.Error(err)
			return
		}
		f.ln, f.addr = ln, ln.Addr().String()
		go f.accept(ln)
	}
}

// counted is what came since the mood changed.
func (f *front) counted() calls {
	f.mu.Lock()
	defer f.mu.Unlock()
	return calls{f.came.connections, f.came.commands}
}

func (f *front) accept(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.came.connections++
		is := f.mood
		f.mu.Unlock()
		if is == slammed || is == closed {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
			continue
		}
		go f.serve(conn)
	}
}

// serve passes on what a client and the server say, once the front is open.
func (f *front) serve(client net.Conn) {
	server, err := net.Dial("tcp", f.to)
	if err != nil {
		_ = client.Close()
		return
	}
	f.mu.Lock()
	f.conns[client], f.conns[server] = true, true
	f.mu.Unlock()
	var both sync.WaitGroup
	end := func() {
		_ = client.Close()
		_ = server.Close()
	}
	both.Go(func() {
		defer end()
		in := bufio.NewReader(client)
		for {
			raw, name, err := command(in)
			if err != nil || !f.pass(name) {
				return
			}
			if _, err = server.Write(raw); err != nil {
				return
			}
		}
	})
	both.Go(func() {
		defer end()
		buffer := make([]byte, 64<<10)
		for {
			n, err := server.Read(buffer)
			if err != nil || !f.pass("") {
				return
			}
			if _, err = client.Write(buffer[:n]); err != nil {
				return
			}
		}
	})
	both.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, client)
	delete(f.conns, server)
}

// pass counts a command and waits until something may pass, if it may.
func (f *front) pass(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name != "" {
		f.came.commands[name]++
	}
	for f.mood == silent {
		f.moved.Wait()
	}
	return f.mood == open
}

// command reads a command as a client sends it: an array of strings.
func command(in *bufio.Reader) (raw []byte, name string, err error) {
	count := func(mark byte) (n int, err error) {
		line, err := in.ReadBytes('\n')
		if err != nil || line[0] != mark {
			return 0, fmt.Errorf("%q is not a command: %w", line, err)
		}
		raw = append(raw, line...)
		return strconv.Atoi(strings.TrimSpace(string(line[1:])))
	}
	n, err := count('*')
	for i := range n {
		var size int
		if err != nil {
			return nil, "", err
		}
		if size, err = count('$'); err != nil {
			return nil, "", err
		}
		word := make([]byte, size+2)
		if _, err = io.ReadFull(in, word); err != nil {
			return nil, "", err
		}
		if raw = append(raw, word...); i == 0 {
			name = strings.ToLower(string(word[:size]))
		}
	}
	return raw, name, err
}
