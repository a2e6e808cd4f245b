package chaos

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dulyhq/duly/lock"
	"github.com/dulyhq/duly/queue"
)

// A tally is what came of tasks; doc.go says what is counted.
type tally struct {
	Attempts   int `json:"attempts"`
	Acked      int `json:"acked"`
	Unknown    int `json:"unknown"`
	Refused    int `json:"refused"`
	Lost       int `json:"lost"`
	Unexpected int `json:"unexpected"`
	Duplicated int `json:"duplicated"`
	Recovered  int `json:"recovered"`
	Early      int `json:"early"`
	DoubleAcks int `json:"double_acks"`
	Reruns     int `json:"reruns"`

	lost []string // their IDs
}

// An outcome is what enqueuing a task has answered.
type outcome int

const (
	acked outcome = iota
	unknown
	refused
)

// tries are the tasks that were tried to enqueue, and what was answered last.
type tries struct {
	mu sync.Mutex
	of map[string]outcome
	at map[string]int64 // when they were first confirmed, µs
}

func newTries() *tries { return &tries{of: make(map[string]outcome), at: make(map[string]int64)} }

// note takes note of an answer. What was once confirmed stays so, and what may have
// been taken once is not refused by a later try.
func (ts *tries) note(id string, err error) outcome {
	o := acked
	switch {
	case errors.Is(err, queue.ErrUnknownOutcome), errors.Is(err, lock.ErrUnreplicated):
		o = unknown
	case err != nil:
		o = refused
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	before, known := ts.of[id]
	if !known || o < before {
		ts.of[id] = o
		if o == acked {
			ts.at[id] = time.Now().UnixMicro()
		}
	}
	return o
}

// count compares the tries with what the workers have noted. attempts is how many
// runs the task of an ID was to have.
func (ts *tries) count(runs []run, attempts func(id string) int) *tally {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	var total tally
	began, ended := make(map[string]int), make(map[string]map[uint64]bool)
	for _, r := range runs {
		if r.Acked {
			if ended[r.ID] == nil {
				ended[r.ID] = make(map[uint64]bool)
			}
			ended[r.ID][r.Fence] = true
			continue
		}
		began[r.ID]++
		if r.Popped < r.Due || r.At < r.Due {
			total.Early++
		}
	}
	for id, n := range began {
		if o, tried := ts.of[id]; !tried || o == refused {
			total.Unexpected++
		}
		if most := attempts(id); n > most {
			total.Duplicated++
			total.Reruns += n - most
		}
		if len(ended[id]) > 1 {
			total.DoubleAcks++
		}
	}
	for id, o := range ts.of {
		total.Attempts++
		switch o {
		case acked:
			total.Acked++
			if began[id] == 0 {
				total.lost = append(total.lost, id)
			}
		case unknown:
			total.Unknown++
			if began[id] > 0 {
				total.Recovered++
			}
		case refused:
			total.Refused++
		}
	}
	total.Lost = len(total.lost)
	return &total
}

// clean notes in the report what must not be, whatever the fault.
func (r *report) clean(total *tally) {
	r.t.Helper()
	r.cleanBut(total, 0, 0)
}

// cleanBut is clean where a failover may have lost some tasks and forgotten the ends of
// others.
func (r *report) cleanBut(total *tally, lost, forgotten int) {
	r.t.Helper()
	r.Tally = total
	r.promise(total.Lost <= lost, "%d acknowledged tasks were lost, such as %.200s", total.Lost, fmt.Sprint(total.lost))
	r.promise(total.Unexpected == 0, "%d tasks ran that were refused or never tried", total.Unexpected)
	r.promise(total.DoubleAcks <= forgotten, "%d tasks were ended by two deliveries", total.DoubleAcks)
	r.promise(total.Early == 0, "%d runs began before their task was due", total.Early)
}

// once is the attempts of tasks that do not fail.
func once(string) int { return 1 }
