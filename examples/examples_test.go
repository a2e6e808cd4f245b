package examples_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestExamplesPrintWhatTheySay builds and runs each directory here that holds a
// main.go of this module. What it is to print is the comment after '// Output:' at
// the end of that file; an … in it stands for anything within a line, and one alone
// for any lines. A new example needs no line here.
func TestExamplesPrintWhatTheySay(t *testing.T) {
	t.Parallel()
	names := programs(t)
	bin := t.TempDir()
	args := []string{"build", "-o", bin + string(filepath.Separator)}
	for _, name := range names {
		args = append(args, "./"+name)
	}
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source, err := os.ReadFile(filepath.Join(name, "main.go"))
			if err != nil {
				t.Fatal(err)
			}
			want, ok := promised(string(source))
			if !ok {
				t.Fatal("main.go does not end in a comment that begins with '// Output:'")
			}
			if got := printed(t, filepath.Join(bin, name)); !matches(got, want) {
				t.Errorf("it printed\n%s\nand says that it prints\n%s", got, want)
			}
		})
	}
}

// programs are the directories of this module that hold a program.
func programs(t *testing.T) (names []string) {
	t.Helper()
	mains, err := filepath.Glob("*/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range mains {
		dir := filepath.Dir(file)
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
			names = append(names, dir)
		}
	}
	if len(names) == 0 {
		t.Fatal("there are no examples")
	}
	return names
}

// promised is the comment at the end of a program that says what it prints.
func promised(source string) (want string, ok bool) {
	_, comment, ok := strings.Cut(source, "\n// Output:\n")
	for line := range strings.Lines(comment) {
		text, commented := strings.CutPrefix(line, "//")
		if ok = ok && commented; !ok {
			return "", false
		}
		want += strings.TrimPrefix(text, " ")
	}
	return want, ok
}

// matches compares what was printed with what was promised.
func matches(got, want string) bool {
	var pattern string
	for line := range strings.Lines(want) {
		if line == "…\n" {
			pattern += "(.*\n)*"
			continue
		}
		pattern += strings.ReplaceAll(regexp.QuoteMeta(line), "…", ".*")
	}
	return regexp.MustCompile("^" + pattern + "$").MatchString(got)
}

// printed runs a program, which may take some seconds on a busy machine.
func printed(t *testing.T, program string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	began := time.Now()
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v\n%s", err, stderr.String())
	}
	t.Logf("took %v", time.Since(began).Round(time.Millisecond))
	return string(out)
}

// TestPromisesAreRead: a promise that is not read right is always kept.
func TestPromisesAreRead(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"package main\n\n// Output:\n// a\n// b …\n": "a\nb …\n",
		"package main\n\n// Output:\n// a\n\n// b\n": "-",
		"package main\n\n// Output:\n// a\nfunc f()": "-",
		"package main\n": "-",
	} {
		got, ok := promised(source)
		if ok != (want != "-") || ok && got != want {
			t.Errorf("read %q as %q, %v", source, got, ok)
		}
	}
	for got, want := range map[string]bool{
		"a\nb 7\n": true, "a\nb \n": true, "a\nb 7\n8\n": false, "a\n": false, "a\nb 7": false, " a\nb 7\n": false,
	} {
		if matches(got, "a\nb …\n") != want {
			t.Errorf("%q matches: %v", got, !want)
		}
	}
	for got, want := range map[string]bool{
		"a\nc\n": true, "a\n\nb\nc\n": true, "a\nb c\n": false, "a\nb\n": false, "b\na\nc\n": false,
	} {
		if matches(got, "a\n…\nc\n") != want {
			t.Errorf("%q matches any lines: %v", got, !want)
		}
	}
}
