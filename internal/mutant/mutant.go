// Package mutant tests tests: it switches off one protection of a package at a
// time, and sees that a test fails.
package mutant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// A Mutant is a package with one protection switched off: in File, seen from the
// package, the text Was is Now instead. The tests of the package that match Caught
// must fail for it. An alias, so that go vet lets a table leave the fields' names out.
type Mutant = struct {
	What           string
	File, Was, Now string
	Caught         string
}

// The widths of a line about a mutant.
const (
	whatWidth = 72
	fileWidth = 24
)

// Run checks that a table of mutants fits the code of the package that is tested.
// With DULY_MUTANTS=1 it also runs the tests: those named pass on the package as it is,
// and some of them fail on each mutant. If DULY_MUTANTS names a file instead, as by
// `make mutants`, a line about each is added to that.
func Run(t *testing.T, table []Mutant) {
	dir, err := os.Getwd()
	must(t, err)
	h := hunter{dir: dir, temp: t.TempDir(), report: os.Getenv("DULY_MUTANTS")}
	if h.report != "" {
		t.Run("none", func(t *testing.T) { h.control(t, table) })
	}
	seen := make(map[string]bool)
	for _, m := range table {
		t.Run(m.What, func(t *testing.T) {
			if n := utf8.RuneCountInString(m.What); n > whatWidth || seen[m.What] {
				t.Errorf("its name is not short (%d, at most %d) or not its own", n, whatWidth)
			}
			seen[m.What] = true
			file := filepath.Join(dir, filepath.FromSlash(m.File))
			source, err := os.ReadFile(file) //nolint:gosec // the path is the table's
			must(t, err)
			if n := strings.Count(string(source), m.Was); n != 1 {
				t.Fatalf("%s has %q %d times, want once", m.File, m.Was, n)
			}
			if h.report != "" {
				h.hunt(t, m, file, string(source))
			}
		})
	}
}

// A hunter tests the package in a directory.
type hunter struct {
	dir, temp, report string
	binary            []byte // of the tests on the package as it is
}

// control sees that the tests pass that are to fail on a mutant.
func (h *hunter) control(t *testing.T, table []Mutant) {
	var all []string
	for _, m := range table {
		for name := range strings.SplitSeq(m.Caught, "|") {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	if out, err := h.test(t, h.plain(t), strings.Join(all, "|")); err != nil {
		t.Fatalf("tests fail without a mutant:\n%s", out)
	}
}

// plain is the tests on the package as it is, built once.
func (h *hunter) plain(t *testing.T) []byte {
	if h.binary == nil {
		h.binary = h.build(t)
	}
	return h.binary
}

// hunt runs the tests on a mutant.
func (h *hunter) hunt(t *testing.T, m Mutant, file, source string) {
	changed := strings.Replace(source, m.Was, m.Now, 1)
	var binary []byte
	if filepath.Ext(file) == ".go" {
		binary = h.overlay(t, file, changed)
	} else {
		binary = patch(t, h.plain(t), source, changed)
	}
	out, err := h.test(t, binary, m.Caught)
	if err == nil {
		t.Errorf("it lives: no test of %s noticed", m.Caught)
		h.tell(t, m, "NO TEST")
		return
	}
	names := strings.Join(culprits(out), ", ")
	if names == "" {
		names = "a panic in " + m.Caught
	}
	t.Logf("caught by %s", names)
	h.tell(t, m, names)
}

// overlay builds the tests with a changed file laid over the package.
func (h *hunter) overlay(t *testing.T, file, changed string) []byte {
	over, layer := filepath.Join(h.temp, "over.go"), filepath.Join(h.temp, "over.json")
	must(t, os.WriteFile(over, []byte(changed), 0o600)) //nolint:gosec // in a directory of the test's own
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {file: over}})
	must(t, err)
	must(t, os.WriteFile(layer, overlay, 0o600))
	return h.build(t, "-overlay", layer)
}

// patch changes a script where it is embedded in the tests, which takes no time,
// where to build them takes ten seconds. What is longer costs some of its comments.
func patch(t *testing.T, binary []byte, source, changed string) []byte {
	var b strings.Builder
	over := len(changed) - len(source)
	for line := range strings.Lines(changed) {
		if n := min(over, len(line)-3); n > 0 && strings.HasPrefix(line, "--") {
			line = "--" + line[2+n:]
			over -= n
		}
		b.WriteString(line)
	}
	b.WriteString(strings.Repeat(" ", max(-over, 0)))
	if n := bytes.Count(binary, []byte(source)); n != 1 || b.Len() != len(source) {
		t.Fatalf("the tests have the script %d times, want once, and %d bytes of %d fit", n, len(source), b.Len())
	}
	return bytes.Replace(binary, []byte(source), []byte(b.String()), 1)
}

// build builds the tests.
func (h *hunter) build(t *testing.T, args ...string) []byte {
	path := filepath.Join(h.temp, "built.test")
	args = append([]string{"test", "-c", "-vet=off", "-o", path}, append(args, ".")...)
	cmd := exec.Command("go", args...) //nolint:gosec // the arguments are ours
	cmd.Dir = h.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("it does not compile:\n%s", out)
	}
	binary, err := os.ReadFile(path) //nolint:gosec // it was just built
	must(t, err)
	return binary
}

// test runs tests as `go test` does.
func (h *hunter) test(t *testing.T, binary []byte, names string) ([]byte, error) {
	path := filepath.Join(h.temp, "run.test")
	must(t, os.WriteFile(path, binary, 0o700))                                           //nolint:gosec // it is to be run
	cmd := exec.Command(path, "-test.run", names, "-test.short", "-test.timeout", "90s") //nolint:gosec // it is ours
	cmd.Dir, cmd.Env = h.dir, append(os.Environ(), "DULY_MUTANTS=", "DULY_REQUIRE_REDIS=1")
	cmd.WaitDelay = time.Second // servers that a panic has left behind have its output
	apart(cmd)
	defer end(cmd)
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // they have passed
	}
	return out, err
}

// tell adds a line to the report.
func (h *hunter) tell(t *testing.T, m Mutant, caught string) {
	if h.report == "1" {
		return
	}
	f, err := os.OpenFile(h.report, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	must(t, err)
	_, err = fmt.Fprintf(f, "%-*s  %-*s  %s\n", whatWidth, m.What, fileWidth, path.Join(filepath.Base(h.dir), m.File), caught)
	must(t, err)
	must(t, f.Close())
}

// culprits are the tests that failed, without their parts, or that ran when the time
// was up.
func culprits(out []byte) (names []string) {
	hung := false
	for line := range strings.Lines(string(out)) {
		rest, failed := strings.CutPrefix(line, "--- FAIL: ")
		if !failed && hung {
			rest, failed = strings.CutPrefix(line, "\t\tTest")
			rest = "Test" + rest
		}
		if name, _, _ := strings.Cut(rest, " "); failed {
			if name, _, _ = strings.Cut(name, "/"); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		hung = hung || strings.Contains(line, "running tests:")
	}
	return names
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
