package worker_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// A keyedTask is a task that was there before any of its lock key ran, and when the
// queue says that it is due. Ties go by ID.
type keyedTask struct {
	id, key string
	due     time.Time
}

// judge tells what is wrong with the runs of tasks:
//
//   - Runs of one key, the application's too, do not overlap. One whose context had ended counts until then
//     alone, and one that was killed until the kill.
//   - Fences rise from run to run of a key.
//   - When a task runs, those of its key that are due before it have been run to
//     their end: crashed ones again, and those that fail once.
//   - Every task is done, and what is done is done again only if its process was
//     killed, perhaps before it could say so.
func judge(tasks []keyedTask, runs []keyedRun) (wrong []string) {
	byKey := make(map[string][]keyedTask)
	known := make(map[string]keyedTask)
	for _, task := range tasks {
		byKey[task.key] = append(byKey[task.key], task)
		known[task.id] = task
	}
	runsOf := make(map[string][]keyedRun)
	for _, r := range runs {
		runsOf[r.key] = append(runsOf[r.key], r)
		if r.id != "" && known[r.id].key != r.key {
			wrong = append(wrong, fmt.Sprintf("unknown: task %q of key %q ran", r.id, r.key))
		}
		if r.how == ranOn {
			wrong = append(wrong, fmt.Sprintf("endless: the run of %q with fence %d has no end", r.id, r.fence))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		ran := runsOf[key]
		slices.SortFunc(ran, func(a, b keyedRun) int { return cmp.Compare(a.start, b.start) })
		wrong = slices.Concat(wrong, apart(key, ran), inOrder(byKey[key], ran), allDone(byKey[key], ran))
	}
	return wrong
}

// apart judges the runs of one key, in the order in which they began.
func apart(key string, ran []keyedRun) (wrong []string) {
	var last keyedRun // of those before, the one that ended last
	var fence uint64
	for _, r := range ran {
		if r.start < last.end {
			wrong = append(wrong, fmt.Sprintf("overlap: of key %q, %q (fence %d) began %v before the end of %q (fence %d, %s)",
				key, r.id, r.fence, last.end-r.start, last.id, last.fence, last.how))
		}
		if r.fence <= fence {
			wrong = append(wrong, fmt.Sprintf("fence: of key %q, %q began with fence %d after %d", key, r.id, r.fence, fence))
		}
		fence = max(fence, r.fence)
		if r.how != ranCut && r.end > last.end {
			last = r
		}
	}
	return wrong
}

// inOrder judges whether tasks of one key ran as they were due.
func inOrder(tasks []keyedTask, ran []keyedRun) (wrong []string) {
	ended := make(map[string]time.Duration) // the first time
	for _, r := range ran {
		if before, again := ended[r.id]; (r.how == ranOK || r.how == ranFailed) && (!again || r.end < before) {
			ended[r.id] = r.end
		}
	}
	tasks = slices.SortedFunc(slices.Values(tasks), func(a, b keyedTask) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.id, b.id))
	})
	type turn struct {
		from  time.Duration
		after string
	}
	turns := make(map[string]turn) // when a task might begin
	var next turn
	for _, task := range tasks {
		turns[task.id] = next
		end, ok := ended[task.id]
		if !ok {
			end = math.MaxInt64
		}
		if end > next.from {
			next = turn{end, task.id}
		}
	}
	for _, r := range ran {
		if turn := turns[r.id]; r.start < turn.from {
			wrong = append(wrong, fmt.Sprintf("order: of key %q, %q (fence %d) began before %q had ended, which is due before it",
				r.key, r.id, r.fence, turn.after))
		}
	}
	return wrong
}

// allDone judges whether tasks of one key were done, and no oftener than they had
// to be.
func allDone(tasks []keyedTask, ran []keyedRun) (wrong []string) {
	done := make(map[string]keyedRun)
	for _, r := range ran {
		if before, again := done[r.id]; again && !before.killed {
			wrong = append(wrong, fmt.Sprintf("again: task %q, which was done with fence %d, ran with fence %d", r.id, before.fence, r.fence))
		}
		if r.how == ranOK && r.id != "" {
			done[r.id] = r
		}
	}
	for _, task := range tasks {
		if _, ok := done[task.id]; !ok {
			wrong = append(wrong, fmt.Sprintf("lost: task %q was not done", task.id))
		}
	}
	return wrong
}

// gaps are the times from the end of one run of a key to the start of the next,
// the shortest first.
func gaps(runs []keyedRun, after func(keyedRun) bool) (all []time.Duration) {
	runs = slices.Clone(runs)
	slices.SortFunc(runs, func(a, b keyedRun) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.start, b.start))
	})
	for i := 1; i < len(runs); i++ {
		if a, b := runs[i-1], runs[i]; a.key == b.key && after(a) {
			all = append(all, b.start-a.end)
		}
	}
	slices.Sort(all)
	return all
}

// quantile is the p-th part of sorted durations.
func quantile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(p*float64(len(sorted))), len(sorted)-1)]
}
