package lock_test

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/dulyhq/duly/lock"
)

// Two of five servers hang, again and again. One of the others has a clock that
// is an hour ahead, so fences rise only if majorities agree on them.
func TestHistoriesOfAQuorumWithHungServersAreLegal(t *testing.T) {
	g := newGame(t, 5, 3)
	n := number(t, "DULY_HISTORIES", 2)
	ahead := g.servers[0].Client()
	for i := range n {
		fence := time.Now().Add(time.Hour).UnixMicro()
		must(t, ahead.Set(t.Context(), fmt.Sprintf("duly:lock:{%s}:fence", nameOf(i)), fence, 0).Err())
	}
	g.playOnQuorum(t, n, func(server int) (mend func()) {
		g.servers[server].Signal(syscall.SIGSTOP)
		return func() { g.servers[server].Signal(syscall.SIGCONT) }
	})
}

// Two of five servers die and come back without their data. They stay down for
// longer than any TTL, as NewQuorum asks.
func TestHistoriesOfAQuorumWithDeadServersAreLegal(t *testing.T) {
	g := newGame(t, 5, 3)
	g.playOnQuorum(t, number(t, "DULY_HISTORIES", 2), func(server int) (mend func()) {
		g.servers[server].Kill()
		return g.servers[server].Restart
	})
}

// playOnQuorum makes and judges n histories while any two servers are broken and
// mended in turn.
func (g *game) playOnQuorum(t *testing.T, n int, broken func(server int) (mend func())) {
	t.Helper()
	g.open = lock.NewQuorum
	began, rounds := time.Now(), 0
	rng := rand.New(rand.NewPCG(g.seed, 1<<32))
	var histories [][]op
	done := make(chan struct{})
	go func() {
		defer close(done)
		histories = g.play(t, n, 1)
	}()
	for ended := false; !ended; rounds++ {
		var mends []func()
		for _, server := range rng.Perm(len(g.servers))[:2] {
			mends = append(mends, broken(server))
		}
		<-time.After(2*longestTTL + time.Duration(rng.Int64N(int64(longestTTL))))
		for _, mend := range mends {
			mend()
		}
		select {
		case <-done:
			ended = true
		case <-time.After(longestTTL):
		}
	}
	t.Logf("played in %v, two servers broken %d times: %v", time.Since(began), rounds, g.summary(histories))
	g.judge(t, histories)
}
