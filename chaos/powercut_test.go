package chaos

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/dulyhq/duly"
	"github.com/dulyhq/duly/lock/redistest"
	"github.com/dulyhq/duly/queue"
)

// A blackout is a power cut that was played.
type blackout struct {
	at  time.Time // just before Redis was gone
	cut int64     // bytes of its log that were not on the disk
}

// blackout kills a server and takes from its log what it had not synced.
func (r *report) blackout(server *redistest.Server) blackout {
	r.t.Helper()
	b := blackout{at: time.Now()}
	server.Kill()
	logs, err := filepath.Glob(filepath.Join(filepath.Dir(server.Socket), "appendonlydir", "*.incr.aof"))
	must(r.t, err)
	if len(logs) != 1 {
		r.t.Fatalf("Redis has the logs %v, of which there is to be one", logs)
	}
	var synced int64 // none, if nothing was synced
	digits, err := os.ReadFile(logs[0] + ".synced")
	if err == nil {
		synced, err = strconv.ParseInt(string(bytes.TrimSpace(digits)), 10, 64)
	} else if os.IsNotExist(err) {
		err = nil
	}
	must(r.t, err)
	info, err := os.Stat(logs[0])
	must(r.t, err)
	if b.cut = info.Size() - synced; b.cut > 0 {
		must(r.t, os.Truncate(logs[0], synced))
	}
	return b
}

// ahead makes tasks that are due at once or within three seconds, so that at any time
// there are many that are confirmed and have not run.
func (r *report) ahead(i int) (duly.Task, []queue.EnqueueOption) {
	in := time.Duration(r.roll(3000)) * time.Millisecond
	return duly.Task{ID: fmt.Sprintf("task-%06d", i), Kind: "quick"}, []queue.EnqueueOption{queue.In(in)}
}

// cutPower cuts the power of a server with an appendfsync, again and again, while
// tasks come in and workers run.
func (r *report) cutPower(appendfsync string) (ts *tries, runs []run, cuts []blackout) {
	r.t.Helper()
	inMemory(r.t)
	preload(r.t, "powercut.c")
	server := redistest.Start(r.t, "--appendonly", "yes", "--appendfsync", appendfsync, "--auto-aof-rewrite-percentage", "0")
	c := r.assemble(process{Redis: place{Socket: server.Socket}, Slots: 8, Lease: time.Second, MaxCrashes: 1_000_000})
	hands := []*hand{c.mustHire(), c.mustHire()}
	ts = newTries()
	stop := c.pour(ts, time.Millisecond, r.ahead)
	for range pick(1, 3, 50) {
		time.Sleep(time.Duration(2200+r.roll(1000)) * time.Millisecond)
		cuts = append(cuts, r.blackout(server))
		r.fault("power cut", 1)
		server.Restart()
		c.awaitRun(10 * time.Second)
	}
	stop()
	c.finish(hands, time.Minute)
	return ts, c.runs(), cuts
}

// A power cut takes nothing that was confirmed under appendfsync always.
func TestPowerCutsLoseNothingThatIsSyncedAlways(t *testing.T) {
	r := begin(t, "power cut, always")
	ts, runs, _ := r.cutPower("always")
	total := ts.count(runs, once)
	r.clean(total)
	r.measure("lost, tasks", float64(total.Lost))
}

// Under everysec a power cut takes what was confirmed in the last two seconds, at
// most; likewise a task that ended then may come back, and end twice.
func TestPowerCutsLoseTwoSecondsAtMost(t *testing.T) {
	r := begin(t, "power cut, everysec")
	ts, runs, cuts := r.cutPower("everysec")
	oldest := time.Duration(0)
	forgiven := func(at time.Time) bool {
		for _, cut := range cuts {
			age := cut.at.Sub(at)
			if age <= 2*time.Second && age > -time.Second { // an answer is noted some time after it was given
				oldest = max(oldest, age)
				return true
			}
		}
		return false
	}
	total := ts.count(runs, once)
	r.afterCuts(total, cuts)
	late := slices.DeleteFunc(slices.Clone(total.lost), func(id string) bool { return forgiven(time.UnixMicro(ts.at[id])) })
	r.promise(len(late) == 0, "%d tasks were lost that were confirmed more than 2 s before a cut, such as %.200s", len(late), fmt.Sprint(late))
	r.measure("oldest that was lost, ms", float64(oldest.Milliseconds()))
	late = nil
	for id, ends := range endings(runs) {
		for _, at := range ends[:len(ends)-1] { // the last has stayed
			if !forgiven(at) {
				late = append(late, id)
			}
		}
	}
	r.promise(len(late) == 0, "%d tasks ended again that had ended more than 2 s before a cut, such as %.200s", len(late), fmt.Sprint(late))
}

// With appendfsync no nothing is promised: what is lost is counted. Yet nothing runs
// that was not enqueued, or early, and workers go on.
func TestPowerCutsAreCountedWhereNothingIsSynced(t *testing.T) {
	r := begin(t, "power cut, no")
	ts, runs, cuts := r.cutPower("no")
	r.afterCuts(ts.count(runs, once), cuts)
}

// afterCuts notes in the report what came of tasks of which some may be lost. A cut
// that left everything would show nothing.
func (r *report) afterCuts(total *tally, cuts []blackout) {
	r.t.Helper()
	r.Tally = total
	r.promise(total.Unexpected == 0, "%d tasks ran that were refused or never tried", total.Unexpected)
	r.promise(total.Early == 0, "%d runs began before their task was due", total.Early)
	var bytes int64
	for _, cut := range cuts {
		r.promise(cut.cut > 0, "a power cut has left all of the log")
		bytes += cut.cut
	}
	r.measure("cut from the log, bytes", float64(bytes))
	r.measure("lost, tasks", float64(total.Lost))
}

// endings are the moments at which the queue confirmed that a task is done, by ID and
// in order.
func endings(runs []run) map[string][]time.Time {
	ends := make(map[string][]time.Time)
	for _, r := range runs {
		if r.Acked {
			ends[r.ID] = append(ends[r.ID], time.UnixMicro(r.At))
		}
	}
	for _, at := range ends {
		slices.SortFunc(at, time.Time.Compare)
	}
	return ends
}
