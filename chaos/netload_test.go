package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/dulyhq/duly/lock/redistest"
)

// A loaded crew works while faults befall it: three workers, and an app that enqueues.
type loaded struct {
	*crew
	*app
	ts    *tries
	hands []*hand
	worst time.Duration // until all worked again
}

// load sets a crew to work on the Redis of a place. Where redis is, no fault reaches.
func (r *report) load(server *redistest.Server, at place) *loaded {
	r.t.Helper()
	// Faults make leases run out, and are no crashes.
	c := r.assemble(process{Redis: place{Socket: server.Socket}, Lease: 2 * time.Second, MaxCrashes: 1_000_000})
	l := &loaded{crew: c, ts: newTries()}
	c.told.Redis = at
	for range 3 {
		l.hands = append(l.hands, c.mustHire())
	}
	c.told.Redis = place{Socket: server.Socket}
	l.app = c.employ(l.ts, at, 5*time.Millisecond, 500*time.Millisecond)
	c.resumed(time.Now(), l.app, l.hands...)
	return l
}

// plan is what chooses the faults; that of the report chooses the app's tasks meanwhile.
func (r *report) plan() *rand.Rand { return rand.New(rand.NewPCG(r.Seed, 1)) }

// again waits until all work again after a fault that has just ended.
func (l *loaded) again() {
	l.worst = max(l.worst, l.resumed(time.Now(), l.app, l.hands...))
}

// finish ends the load and judges what came of the tasks.
func (l *loaded) finish() {
	l.dismiss()
	r := l.report
	r.measure("all work again after, max ms", ms(l.worst))
	r.promise(l.worst <= 2*time.Second, "all worked again only %v after a fault", l.worst)
	for i, h := range l.hands {
		_, status := h.stop()
		r.promise(status == 0, "worker %d ended with status %d", i, status)
	}
	l.drain(2, time.Minute)
	total := l.ts.count(l.runs(), once)
	r.clean(total)
	r.promise(total.Acked > 0, "no task was acknowledged")
}

// The connections of workers and of the app that enqueues are struck again and again.
func TestConnectionFaultsUnderLoadLoseNothing(t *testing.T) {
	t.Parallel()
	r := begin(t, "connection faults under load")
	server := redistest.Start(t)
	w := newWire(t, server.Addr)
	defer w.cut()
	rnd := r.plan()
	l := r.load(server, place{Addrs: []string{w.addr()}})
	for range pick(6, 60, 3000) {
		fault := &troubles[rnd.IntN(len(troubles))]
		for fault.name == "half-open" { // which moves the proxy
			fault = &troubles[rnd.IntN(len(troubles))]
		}
		fault.strike(w, rand.New(rand.NewPCG(rnd.Uint64(), 0)))
		r.fault(fault.name, 1)
		time.Sleep(time.Duration(50+rnd.IntN(500)) * time.Millisecond)
		w.mend()
		l.again()
	}
	l.finish()
}

// Redis is stopped for seconds, pauses its clients, and kills them, under load.
func TestAStandstillOfRedisLosesNothing(t *testing.T) {
	t.Parallel()
	r := begin(t, "Redis stands still")
	server := redistest.Start(t)
	admin := server.Client()
	rnd := r.plan()
	l := r.load(server, place{Addrs: []string{server.Addr}})
	faults := map[string]func() error{
		"SIGSTOP": func() error {
			server.Signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(pick(500, 2000, 2000)+rnd.IntN(2000)) * time.Millisecond)
			server.Signal(syscall.SIGCONT)
			return nil
		},
		"CLIENT PAUSE": func() error {
			kind, pause := []string{"all", "write"}[rnd.IntN(2)], 100+rnd.IntN(1500)
			err := admin.Do(context.Background(), "client", "pause", pause, kind).Err()
			time.Sleep(time.Duration(pause) * time.Millisecond)
			return err
		},
		"CLIENT KILL": func() error {
			kind := []string{"normal", "pubsub"}[rnd.IntN(2)]
			return admin.Do(context.Background(), "client", "kill", "type", kind, "skipme", "yes").Err()
		},
	}
	names := []string{"SIGSTOP", "CLIENT PAUSE", "CLIENT KILL", "CLIENT KILL"}
	for i := range pick(4, 40, 1000) {
		name := names[i%len(names)]
		if err := faults[name](); err != nil {
			t.Fatal(fmt.Errorf("%s: %w", name, err))
		}
		r.fault(name, 1)
		l.again()
		time.Sleep(time.Duration(rnd.IntN(200)) * time.Millisecond)
	}
	l.finish()
}
