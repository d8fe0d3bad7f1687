package controlplane_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

// childEnv tells a re-executed test binary how to end.
const childEnv = "STEADWATCH_TEST_CHILD"

// TestChild is no test: it is what TestNothingOutlivesTheTestBinary runs in a
// process of its own.
func TestChild(t *testing.T) {
	how := os.Getenv(childEnv)
	if how == "" {
		t.Skip("only run by TestNothingOutlivesTheTestBinary")
	}
	dir := os.Getenv(childEnv + "_DIR")
	if _, err := controlplane.Start(t.Context(), controlplane.Config{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	fmt.Println("up")
	switch how {
	case "panic":
		// In a goroutine: nothing can recover it, no deferred function of the test runs.
		go func() { panic("as intended") }()
		select {}
	case "exit":
		os.Exit(3)
	}
	select {} // until killed
}

func TestNothingOutlivesTheTestBinary(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs the parent-death signal of Linux")
	}
	plane.ForTest(t) // skips without binaries
	t.Parallel()
	for _, how := range []string{"panic", "exit", "SIGKILL"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			child := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
			child.Env = append(os.Environ(), childEnv+"="+how, childEnv+"_DIR="+filepath.Join(dir, "state"))
			out, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			defer child.Process.Kill()
			up := false
			var lines []string
			for s := bufio.NewScanner(out); s.Scan(); {
				lines = append(lines, s.Text())
				if s.Text() == "up" {
					up = true
					break
				}
			}
			if !up {
				t.Fatalf("the child did not come up:\n%s", strings.Join(lines, "\n"))
			}
			if how == "SIGKILL" {
				if running := processes(t, filepath.Join(dir, "state")); len(running) != 2 {
					t.Fatalf("running: %v, want etcd and kube-apiserver", running)
				}
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			if err := child.Wait(); err == nil {
				t.Error("the child ended well")
			}
			eventually(t, 30*time.Second, "all processes are gone", func() error {
				if running := processes(t, filepath.Join(dir, "state")); len(running) > 0 {
					return fmt.Errorf("running: %v", running)
				}
				return nil
			})
		})
	}
}

func processes(t *testing.T, dir string) []controlplane.Process {
	t.Helper()
	running, err := controlplane.Processes(dir)
	if err != nil {
		t.Fatal(err)
	}
	return running
}

func TestDetachedUntilDown(t *testing.T) {
	plane.ForTest(t) // skips without binaries
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	t.Cleanup(func() { _, _ = controlplane.Down(context.Background(), dir) })
	if _, err := controlplane.Start(t.Context(), controlplane.Config{Dir: dir, Detach: true}); err != nil {
		t.Fatal(err)
	}
	if _, version, err := controlplane.Check(t.Context(), dir); err != nil || !strings.HasPrefix(version, "v1.") {
		t.Fatalf("Check: version %q, %v", version, err)
	}
	if _, err := controlplane.Start(t.Context(), controlplane.Config{Dir: dir, Detach: true}); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a second Start in the same folder: %v", err)
	}
	running := processes(t, dir)
	if len(running) != 2 {
		t.Fatalf("running: %v, want etcd and kube-apiserver", running)
	}
	// Half of it dead, the other half stopped.
	for i, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
		if err := syscall.Kill(running[i].PID, sig); err != nil {
			t.Fatal(err)
		}
	}
	if killed, err := controlplane.Down(t.Context(), dir); err != nil || killed < 1 {
		t.Errorf("Down = %d, %v", killed, err)
	}
	if running := processes(t, dir); len(running) > 0 {
		t.Errorf("left running: %v", running)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	if killed, err := controlplane.Down(t.Context(), dir); err != nil || killed != 0 {
		t.Errorf("Down where nothing is = %d, %v", killed, err)
	}
}

func TestDownSparesOtherFolders(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := controlplane.Down(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "not the folder of a control plane") {
		t.Errorf("Down: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

func TestProgramsAreStoppedAndHeard(t *testing.T) {
	cp := plane.ForTest(t)
	program, err := cp.StartProgram("talker", "/bin/sh", "-c", "trap 'echo bye; exit 7' TERM; echo hello; while :; do read _ || sleep 0.05; done")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "hello", func() error {
		if log := program.Log(); !strings.Contains(log, "hello") {
			return fmt.Errorf("log: %q", log)
		}
		return nil
	})
	if code := program.ExitCode(); code != -1 {
		t.Errorf("exit code of a running program: %d", code)
	}
	if code := program.Stop(30 * time.Second); code != 7 || !strings.Contains(program.Log(), "bye") {
		t.Errorf("exit code %d, log %q", code, program.Log())
	}
}
