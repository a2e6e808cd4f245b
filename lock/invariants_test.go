package lock_test

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dulyhq/duly/lock"
)

// invariants are what this package is tested for above all, each with the test to
// read first.
var invariants = []struct{ what, test string }{
	{"exclusion: claims to one name never overlap", "TestHistoriesAreLegal"},
	{"fences rise strictly, and a repeated request gets the same", "TestFencesRise"},
	{"a store that checks fences loses no update of a holder that was paused", "TestFencesLoseNoUpdateOfAStoppedProcess"},
	{"a token that is not the owner's changes no byte", "TestWholeTokenIsCompared"},
	{"a request without an answer ends as a success or as a refusal", "TestRepeatedRequestsChangeNothing"},
	{"whoever dies, a waiter that lives gets the lock in a bounded time", "TestLiveWaiterAcquiresWhoeverDies"},
	{"a message that is lost delays, and one that is spurious grants nothing", "TestSpuriousMessagesGrantNothing"},
	{"no waiter that lives is overtaken", "TestWaitersHaveTheirTurnInTheOrderOfTheirComing"},
	{"two commands without contention, three a handover", "TestHandoverCostsThreeCommandsHoweverManyWait"},
	{"a holder who is cut off is told before its key expires", "TestBlackHoledHolderStopsBeforeItsKeyExpires"},
	{"a caller who gives up at any moment leaves nothing behind", "TestCancelledWaiterLeavesNothing"},
	{"a quorum works with a minority down, and says when it cannot", "TestQuorumWorksWithAMinorityDown"},
	{"a guarded script does nothing while another holds the lock", "TestGuardedScript"},
	{"a script touches one slot", "TestEveryScriptTouchesOneSlot"},
}

func TestInvariantsHaveTheirTests(t *testing.T) {
	t.Parallel()
	tests := make(map[string]bool)
	files, err := filepath.Glob("*_test.go")
	must(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		must(t, err)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				tests[f.Name.Name] = true
			}
		}
	}
	for i, inv := range invariants {
		if !tests[inv.test] {
			t.Errorf("%d, %s: there is no %s", i+1, inv.what, inv.test)
		}
	}
}

// A cluster refuses a script whose keys are in several slots; one node does not,
// so the slots are counted here.
func TestEveryScriptTouchesOneSlot(t *testing.T) {
	t.Parallel()
	cluster := openCluster(t)
	for _, prefix := range []string{"{one}:", "shop:{two}:lock:", "none:"} {
		s := &slots{server: cluster(new(link))}
		t.Cleanup(func() { _ = s.server.Close() })
		client := cluster(new(link))
		t.Cleanup(func() { _ = client.Close() })
		client.AddHook(s)
		locker, err := lock.New(client, lock.Config{Prefix: prefix})
		must(t, err)
		lease, err := locker.Acquire(t.Context(), "a", time.Minute)
		must(t, err)
		next := make(chan error)
		go func() { next <- release(locker.Acquire(soon(t), "a", time.Minute)) }()
		eventually(t, "one waits", func() bool {
			info, err := locker.Inspect(t.Context(), "a")
			return err == nil && info.Waiters == 1
		})
		must(t, lease.Extend(t.Context(), time.Hour))
		must(t, lease.Release(t.Context()))
		must(t, <-next)
		_, err = locker.ForceRelease(t.Context(), "a")
		must(t, err)
		if s.scripts < 7 || len(s.bad) > 0 {
			t.Errorf("prefix %q: of %d scripts these touch several slots: %v", prefix, s.scripts, s.bad)
		}
	}
}

// slots is a hook that asks a cluster for the slots of each script's keys.
type slots struct {
	hooks
	server redis.UniversalClient

	mu      sync.Mutex // guards what follows
	scripts int
	bad     []string
}

func (s *slots) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			if err := s.see(ctx, cmd.Args()); err != nil {
				return err
			}
		}
		return next(ctx, cmd)
	}
}

func (s *slots) see(ctx context.Context, args []any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts++
	seen := make(map[int64]bool)
	for _, key := range args[3 : 3+args[2].(int)] {
		slot, err := s.server.ClusterKeySlot(ctx, fmt.Sprint(key)).Result()
		if err != nil {
			return err
		}
		seen[slot] = true
	}
	if len(seen) != 1 {
		s.bad = append(s.bad, fmt.Sprint(args[3:]))
	}
	return nil
}
