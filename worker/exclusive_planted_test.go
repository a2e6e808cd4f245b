package worker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const ms = time.Millisecond

// history is the runs of three keys with four tasks each as they should be: the
// second task of each fails once, the third is killed once, and the fourth is done
// twice since its process was killed before it could say so. The last run of all is
// cut off, and the task done again. The application has had the lock twice.
func history() (tasks []keyedTask, runs []keyedRun) {
	due := time.Unix(1_000_000, 0)
	fence := uint64(100)
	for _, key := range []string{"x", "y", "z"} {
		now := time.Hour
		run := func(id, how string, killed bool) {
			fence++
			runs = append(runs, keyedRun{id, key, fence, now, now + 5*ms, how, killed})
			now += 6 * ms
		}
		for i := range 4 {
			tasks = append(tasks, keyedTask{fmt.Sprint(key, i), key, due.Add(time.Duration(i) * ms)})
		}
		run(key+"0", ranOK, false)
		run(key+"1", ranFailed, false)
		run(key+"2", ranDead, true)
		run(key+"2", ranOK, false)
		run(key+"1", ranOK, false)
		run(key+"3", ranOK, true)
		run("", ranOK, false)
		run("", ranOK, false)
		run(key+"3", ranCut, false)
		run(key+"3", ranOK, false)
	}
	return tasks, runs
}

func TestRightHistoryIsFoundRight(t *testing.T) {
	t.Parallel()
	tasks, runs := history()
	if wrong := judge(tasks, runs); len(wrong) > 0 {
		t.Errorf("found %q", wrong)
	}
	slices.Reverse(runs) // they are read file by file
	if wrong := judge(tasks, runs); len(wrong) > 0 {
		t.Errorf("found %q in another order", wrong)
	}
}

// TestPlantedFaultsOfHistoriesAreFound: in the second of three keys.
func TestPlantedFaultsOfHistoriesAreFound(t *testing.T) {
	t.Parallel()
	const first = 10 // run of the second key
	for name, c := range map[string]struct {
		plant func(tasks []keyedTask, runs []keyedRun) ([]keyedTask, []keyedRun)
		want  []string // beginnings of what is found
	}{
		"two runs overlap by a nanosecond": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			rs[first+3].end = rs[first+4].start + 1
			return ts, rs
		}, []string{`overlap: of key "y"`}},
		"a run lies in another that is not the one before it": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			rs[first+3].end = rs[first+6].start + ms // the application's
			return ts, rs
		}, []string{`overlap: of key "y"`, `overlap: of key "y"`, `overlap: of key "y"`, "order"}},
		"a run begins before the kill": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			rs[first+2].end = rs[first+3].start + ms
			return ts, rs
		}, []string{`overlap: of key "y"`}},
		"a run begins while the application has the lock": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			rs[first+7].end = rs[first+8].start + 1
			return ts, rs
		}, []string{`overlap: of key "y"`}},
		"the application takes the lock during a run": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			rs[first+6].start = rs[first+5].end - 1
			return ts, rs
		}, []string{`overlap: of key "y"`}},
		"the application's fence is an old one": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			rs[first+6].fence = rs[first].fence
			return ts, rs
		}, []string{`fence: of key "y"`}},
		"a run that is cut off begins too early": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			rs[first+8].start = rs[first+7].end - ms
			return ts, rs
		}, []string{`overlap: of key "y"`}},
		"a fence stays": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			rs[first+1].fence = rs[first].fence
			return ts, rs
		}, []string{`fence: of key "y"`}},
		"a fence falls": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			rs[first].fence, rs[first+1].fence = rs[first+1].fence, rs[first].fence
			return ts, rs
		}, []string{`fence: of key "y"`}},
		"two tasks change places": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			rs[first].id, rs[first+5].id = rs[first+5].id, rs[first].id
			rs[first+5].killed = false
			return ts, rs[:first+6]
		}, []string{"lost", "lost", "lost", "lost", "order", "order", "order", "order", "order"}},
		"the next one does not wait for one that was killed": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			rs[first+3].id, rs[first+5].id, rs[first+5].killed = "y3", "y2", false
			return ts, slices.Delete(rs, first+6, first+10)
		}, []string{"order"}},
		"the next one does not wait for one that was cut off": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			rs[first+2].how, rs[first+2].killed = ranCut, false
			rs[first+3].id, rs[first+5].id, rs[first+5].killed = "y3", "y2", false
			return ts, slices.Delete(rs, first+6, first+10)
		}, []string{"order"}},
		"two tasks that are due together run against the order of their IDs": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			ts = append(ts, keyedTask{"a1", "q", ts[0].due}, keyedTask{"a2", "q", ts[0].due})
			return ts, append(rs, keyedRun{"a2", "q", 1, 1, 2, ranOK, false}, keyedRun{"a1", "q", 2, 3, 4, ranOK, false})
		}, []string{`order: of key "q", "a2"`}},
		"a task is lost": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			return append(ts, keyedTask{"y9", "y", time.Unix(2_000_000, 0)}), rs
		}, []string{`lost: task "y9"`}},
		"a task that failed is lost": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			return ts, slices.Delete(rs, first+4, first+5)
		}, []string{`lost: task "y1"`}},
		"a task that was killed is lost": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			return ts, slices.Delete(rs, first+3, first+4)
		}, []string{`lost: task "y2"`, "order", "order", "order"}},
		"all tasks of a key are lost": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			return ts, slices.Delete(rs, first, first+10)
		}, []string{"lost", "lost", "lost", "lost"}},
		"a task is done twice though its process lived": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			rs[first+5].killed = false
			return ts, rs
		}, []string{`again: task "y3"`, `again: task "y3"`}},
		"a run has no end though its process lived": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			rs[first+2].how = ranOn
			return ts, rs
		}, []string{"endless"}},
		"a task ran that nobody enqueued": {func(ts []keyedTask, rs []keyedRun) ([]keyedTask, []keyedRun) {
			rs[first+9].id = "y7"
			return ts, rs
		}, []string{`unknown: task "y7"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wrong := judge(c.plant(history()))
			slices.Sort(wrong)
			slices.Sort(c.want)
			ok := len(wrong) == len(c.want)
			for i := 0; ok && i < len(wrong); i++ {
				ok = strings.HasPrefix(wrong[i], c.want[i])
			}
			if !ok {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(wrong, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestLogbooksAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	const text = "begin a x 7 100\nbegin b y 7 150\nend a 7 200 ok\nbegin a x 9 300\n"
	for killed, want := range map[time.Duration][]keyedRun{
		0: {
			{"a", "x", 7, 100, 200, ranOK, false},
			{"b", "y", 7, 150, 150, ranOn, false},
			{"a", "x", 9, 300, 300, ranOn, false},
		},
		250: { // the last began after the kill, and before the death
			{"a", "x", 7, 100, 200, ranOK, true},
			{"b", "y", 7, 150, 250, ranDead, true},
			{"a", "x", 9, 300, 300, ranDead, true},
		},
	} {
		if got, err := parseLogbook(text, killed); err != nil || !slices.Equal(got, want) {
			t.Errorf("killed at %v: got %+v, %v", killed, got, err)
		}
	}
	for _, bad := range []string{"begin a x 7 100", "begin a x seven 100\n", "end a 7 200 ok\n", "begun a x 7 100\n"} {
		if got, err := parseLogbook(bad, 0); err == nil {
			t.Errorf("read %q as %+v", bad, got)
		}
	}
}

func TestGapsAreThoseBetweenRunsOfOneKey(t *testing.T) {
	t.Parallel()
	_, runs := history()
	runs[1].start -= ms / 2
	slices.Reverse(runs)
	all := gaps(runs, func(keyedRun) bool { return true })
	if len(all) != 27 || quantile(all, 0) != ms/2 || quantile(all, 0.5) != ms || quantile(all, 1) != ms {
		t.Errorf("got %v", all)
	}
	if killed := gaps(runs, func(r keyedRun) bool { return r.how == ranDead }); len(killed) != 3 {
		t.Errorf("after kills: %v", killed)
	}
}
