package chaos

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/dulyhq/duly/lock/redistest"
)

// Redis is out of reach for a minute: connections to it are refused, or reset as soon
// as they are made.
func TestAnOutageOfRefusedConnectionsIsBorneInPeace(t *testing.T) {
	t.Parallel()
	r := begin(t, "outage, refused")
	// What does not listen counts nothing: one worker meets a port that resets.
	r.outage(closed, slammed, closed, closed)
}

// Redis is out of reach for a minute: connections to it are made and stay silent. What
// was sent arrives when it is over, as on a network that is whole again.
func TestAnOutageOfSilenceIsBorneInPeace(t *testing.T) {
	t.Parallel()
	r := begin(t, "outage, silent")
	r.outage(silent, silent, silent, silent)
}

// slack is for a machine that does other things, and for go-redis: once connections have
// failed often, its pool tries again only once a second.
const slack = 500 * time.Millisecond

// outage lets the fronts of an app and of worker processes have their moods for a while.
func (r *report) outage(ofApp mood, ofWorkers ...mood) {
	away := pick(5*time.Second, time.Minute, time.Minute)
	server := redistest.Start(r.t)
	c := r.assemble(process{Redis: place{Socket: server.Socket}})
	before := newFront(r.t, server.Addr)
	ts := newTries()
	hands, fronts := make([]*hand, len(ofWorkers)), make([]*front, len(ofWorkers))
	for i := range hands {
		fronts[i] = newFront(r.t, server.Addr)
		c.told.Redis = place{Addrs: []string{fronts[i].addr}}
		hands[i] = c.mustHire()
	}
	c.told.Redis = place{Socket: server.Socket} // for those who drain
	for range pick(1, 1, 20) {
		a := c.employ(ts, place{Addrs: []string{before.addr}}, 5*time.Millisecond, 250*time.Millisecond)
		began := time.Now()
		c.resumed(began, a, hands...)
		time.Sleep(500 * time.Millisecond)

		before.be(ofApp)
		for i, m := range ofWorkers {
			fronts[i].be(m)
		}
		r.fault("outage", 1)
		time.Sleep(away)
		for i, f := range fronts {
			r.calm(fmt.Sprint("worker ", i), f.counted(), ofWorkers[i], away, hands[i])
		}
		back := time.Now()
		before.be(open)
		for _, f := range fronts {
			f.be(open)
		}
		took := c.resumed(back, a, hands...)
		r.measure("all work after, ms", ms(took))
		r.promise(took <= 2*time.Second+slack, "all worked again only %v after Redis was back", took)
		a.dismiss()
	}
	for i, h := range hands {
		_, status := h.stop()
		r.promise(status == 0, "worker %d ended with status %d", i, status)
	}
	c.drain(2, time.Minute)
	total := ts.count(c.runs(), once)
	r.clean(total)
	r.promise(total.Acked > 0 && total.Acked < total.Attempts, "%d of %d tasks were acknowledged: there was no outage", total.Acked, total.Attempts)
}

// calm judges what a worker process has done in an outage.
func (r *report) calm(who string, came calls, m mood, away time.Duration, h *hand) {
	log, err := os.ReadFile(h.stderr)
	must(r.t, err)
	var lines, ofClient int
	for line := range bytes.Lines(log) {
		if bytes.HasPrefix(line, []byte("redis: ")) { // go-redis's own logger writes to stderr as well
			ofClient++
		} else {
			lines++
		}
	}
	r.measure(who+", log lines", float64(lines))
	r.measure(who+", log lines of go-redis", float64(ofClient))
	r.promise(lines <= 20, "%s logged %d lines: %.2000s", who, lines, log)
	if m == closed {
		return
	}
	seconds := away.Seconds()
	most := 2 * seconds
	if away < time.Minute {
		most += 20 // the first pauses are short
	}
	r.measure(who+", connections/s", float64(came.connections)/seconds)
	r.measure(who+", commands/s", float64(came.asked())/seconds)
	all := came.connections + came.asked()
	r.promise(all > 0, "%s did not try to reach Redis", who)
	r.promise(float64(all) <= most, "%s made %d connections and %d commands in %v: %v", who, came.connections, came.asked(), away, came.commands)
}
