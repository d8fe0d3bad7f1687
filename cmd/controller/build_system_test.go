package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// binaries are compiled once for all tests.
var binaries struct {
	mu   sync.Mutex
	dir  string
	path map[string]string
}

// binary returns the compiled command. STEADWATCH_CONTROLLER names one to test in
// its place, such as one that was compiled with -race.
func binary(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("STEADWATCH_CONTROLLER"); path != "" {
		return path
	}
	return compile(t, "controller", "")
}

// hangingBinary is a command whose pass over an object named "stuck" never
// returns, whatever its context says.
func hangingBinary(t *testing.T) string {
	t.Helper()
	const (
		file = "../../pkg/controller/webapp/controller.go"
		head = "func (c *Controller) Reconcile(ctx context.Context, key cache.ObjectName) (controller.Result, error) {\n"
	)
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(source), head)
	if !found {
		t.Fatalf("%s has no longer the line %q that this test builds upon", file, head)
	}
	dir := t.TempDir()
	replacement, overlay := filepath.Join(dir, "controller.go"), filepath.Join(dir, "overlay.json")
	absolute, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{
		replacement: before + head + "\tif key.Name == \"stuck\" {\n\t\tselect {}\n\t}\n" + after,
		overlay:     fmt.Sprintf(`{"Replace": {%q: %q}}`, absolute, replacement),
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return compile(t, "hanging", overlay)
}

func compile(t *testing.T, name, overlay string) string {
	t.Helper()
	binaries.mu.Lock()
	defer binaries.mu.Unlock()
	if path := binaries.path[name]; path != "" {
		return path
	}
	if binaries.dir == "" {
		dir, err := os.MkdirTemp("", "steadwatch-system-test-")
		if err != nil {
			t.Fatal(err)
		}
		binaries.dir, binaries.path = dir, map[string]string{}
	}
	path := filepath.Join(binaries.dir, name)
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay="+overlay, "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("compile the controller: %v\n%s", err, out)
	}
	binaries.path[name] = path
	return path
}
