package duly_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/dulyhq/duly"

// importLaw says what each package of this module may import beside the standard
// library, and why. It is a statement of policy: do not change it to mend a
// build. A package that is not listed is a breach, as is an entry that nothing
// needs.
var importLaw = map[string]struct {
	may []string
	why string
}{
	".":               {nil, "code that defines handlers compiles without Redis, as an http.Handler needs no server"},
	"internal/mutant": {nil, "it tests the tests of every package, lock's among them, so it lies under all"},
	"lock": {
		[]string{"github.com/redis/go-redis/v9"},
		"users may take it alone; it knows no task and no queue",
	},
	"lock/redistest": {
		[]string{
			"github.com/redis/go-redis/v9", "github.com/redis/go-redis/v9/maintnotifications", "github.com/alicebob/miniredis/v2",
		},
		"it gives a Redis to the tests of every package, so it lies under all",
	},
	"lock/locktest": {
		[]string{module + "/lock", module + "/lock/redistest", "github.com/redis/go-redis/v9"},
		"users test code that takes locks with the lockers that it runs on; redistest has their Redis",
	},
	"queue": {
		[]string{module, module + "/lock", "github.com/redis/go-redis/v9", "github.com/fxamacker/cbor/v2"},
		"it stores tasks, guarded by locks; it knows no worker",
	},
	"worker": {
		[]string{module, "go.uber.org/zap", "golang.org/x/sync/errgroup", "github.com/robfig/cron/v3"},
		"it runs what any Source delivers, so it knows neither Redis nor the queue; it reads schedules, which a queue only keeps",
	},
	"cmd/duly": {
		[]string{
			module, module + "/queue", module + "/worker", "github.com/redis/go-redis/v9", "github.com/redis/go-redis/v9/logging",
		},
		"it is an operator's hand on a queue; of the worker it needs when a schedule fires",
	},
	"examples/recurring": {
		[]string{module, module + "/queue", module + "/worker", "github.com/redis/go-redis/v9", "github.com/alicebob/miniredis/v2"},
		"it shows recurring tasks, on a Redis in memory",
	},
	"examples/delayed": {
		[]string{module, module + "/queue", module + "/worker", "github.com/redis/go-redis/v9", "github.com/alicebob/miniredis/v2"},
		"it shows due times, and runs with nothing installed",
	},
	"examples/exclusive": {
		[]string{
			module, module + "/lock", module + "/queue", module + "/worker",
			"github.com/redis/go-redis/v9", "github.com/alicebob/miniredis/v2",
		},
		"it shows lock keys, of tasks and of the application, and runs with nothing installed",
	},
	"examples/testing": {
		[]string{module},
		"it shows that what has handlers needs no more than the vocabulary, so that its tests need no Redis",
	},
	"examples/limits": {
		[]string{module, module + "/queue", module + "/worker", "github.com/redis/go-redis/v9", "github.com/alicebob/miniredis/v2"},
		"it shows limits of queues and kinds, and runs with nothing installed",
	},
	"examples/result": {
		[]string{
			module, module + "/queue", module + "/worker", "github.com/redis/go-redis/v9", "github.com/alicebob/miniredis/v2",
		},
		"it is a whole program that runs without a Redis",
	},
	"worker/workertest": {
		[]string{module, module + "/worker"},
		"users test handlers without Redis",
	},
}

func TestImportLaw(t *testing.T) {
	t.Parallel()
	used := imports(t, ".")
	for dir, paths := range used {
		law, listed := importLaw[dir]
		if !listed {
			t.Errorf("package %s is not in the import law", dir)
			continue
		}
		for _, p := range paths {
			if !slices.Contains(law.may, p) {
				t.Errorf("package %s imports %s, against the law: %s", dir, p, law.why)
			}
		}
		for _, p := range law.may {
			if !slices.Contains(paths, p) {
				t.Errorf("package %s may import %s, and does not", dir, p)
			}
		}
	}
	for dir := range importLaw {
		if _, there := used[dir]; !there {
			t.Errorf("the import law lists package %s, which is not there", dir)
		}
	}
}

// imports returns what the packages of the module at root import outside the
// standard library, tests aside.
func imports(t *testing.T, root string) map[string][]string {
	t.Helper()
	found := make(map[string][]string)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); name != root && (strings.HasPrefix(base, ".") || base == "testdata" || ownModule(name)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		dir := path.Dir(filepath.ToSlash(name))
		found[dir] = append(found[dir], []string(nil)...)
		for _, spec := range file.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if strings.Contains(strings.Split(p, "/")[0], ".") && !slices.Contains(found[dir], p) {
				found[dir] = append(found[dir], p)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func ownModule(dir string) bool {
	matches, err := filepath.Glob(filepath.Join(dir, "go.mod"))
	return err == nil && len(matches) > 0
}
