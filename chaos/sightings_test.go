package chaos

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// sightings are what all trials have shown.
type sightings struct {
	*report
	mu                    sync.Mutex // guards what follows
	ok, unknown, definite int
	over, back, freed     []time.Duration
}

func (s *sightings) saw(list *[]time.Duration, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*list = append(*list, d)
}

// judge judges what takes time by nearly all trials: the machine may be busy.
func (s *sightings) judge(n int) {
	for what, list := range map[string][]time.Duration{
		"beyond its deadline": s.over, "until a call works again": s.back, "until a lock of unknown outcome is free": s.freed,
	} {
		if len(list) == 0 {
			continue
		}
		slices.Sort(list)
		s.measure(what+", p99 ms", ms(list[len(list)*99/100]))
		s.measure(what+", max ms", ms(list[len(list)-1]))
	}
	s.measure("answered ok", float64(s.ok))
	s.measure("of unknown outcome", float64(s.unknown))
	s.measure("definite errors", float64(s.definite))
	s.promise(s.ok > 0 && s.unknown > 0 && s.definite > 0, "%d ok, %d unknown, %d definite: the faults do not reach the calls", s.ok, s.unknown, s.definite)
	s.promise(s.ok+s.unknown+s.definite == n, "%d of %d trials were carried out", s.ok+s.unknown+s.definite, n)
	late, slow := s.over[len(s.over)*99/100], s.back[len(s.back)*99/100]
	s.promise(late <= 100*time.Millisecond, "one call in a hundred returned %v beyond its deadline", late)
	s.promise(slow <= 2*time.Second, "one call in a hundred worked only %v after the fault", slow)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// ours are the goroutines of the library and of its clients. The proxy leaves some of
// its own behind.
func ours() string {
	stacks := make([]byte, 4<<20)
	var left []string
	for _, one := range strings.Split(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		for _, of := range []string{"duly/queue.", "duly/lock.", "duly/worker.", "go-redis/"} {
			if strings.Contains(one, of) {
				left = append(left, one)
				break
			}
		}
	}
	return strings.Join(left, "\n\n")
}
