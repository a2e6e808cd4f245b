package duly_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The tests and scenarios by which the page of promises is shown are there.
func TestPromisesNameTestsThatExist(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/promises.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(filepath.Clean(path))
		for _, match := range declared.FindAllSubmatch(source, -1) {
			all = append(all, string(match[1]))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllSubmatch(page, -1)
	if len(named) < 30 {
		t.Errorf("%d tests are named, want those of every promise", len(named))
	}
	for _, match := range named {
		if !slices.Contains(all, string(match[1])) {
			t.Errorf("there is no %s", match[1])
		}
	}
}
