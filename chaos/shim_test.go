package chaos

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// preload compiles a shim, which processes load that are started from now on.
func preload(t *testing.T, source string) {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil || runtime.GOOS != "linux" {
		if os.Getenv("DULY_REQUIRE_REDIS") == "1" {
			t.Fatal("DULY_REQUIRE_REDIS=1, and no Linux with cc on the PATH")
		}
		t.Skip("skipped: needs Linux and cc on the PATH")
	}
	library := filepath.Join(t.TempDir(), "shim.so")
	text, err := exec.Command("cc", "-shared", "-fPIC", "-o", library, filepath.Join("shim", source), "-ldl").CombinedOutput()
	if err != nil {
		t.Fatalf("cc: %v: %s", err, text)
	}
	t.Setenv("LD_PRELOAD", library)
}
