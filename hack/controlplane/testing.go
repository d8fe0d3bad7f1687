package controlplane

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// ForTest starts a control plane for one test and stops it at its end. Without
// binaries it skips the test, or fails it under CI=true. The test fails when a
// process of the control plane ended by itself.
func ForTest(t testing.TB, cfg Config) *ControlPlane {
	t.Helper()
	c := startForTest(t, cfg)
	t.Cleanup(func() { c.endOfTest(t) })
	return c
}

func startForTest(t testing.TB, cfg Config) *ControlPlane {
	t.Helper()
	if cfg.Out == nil {
		// Not t.Log, which says nothing until the test has ended.
		cfg.Out = os.Stderr
	}
	c, err := Start(t.Context(), cfg)
	orSkip(t, err)
	return c
}

func orSkip(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case errors.Is(err, ErrNoBinaries) && os.Getenv("CI") != "true":
		t.Skipf("skipped, no control plane: %v", err)
	default:
		t.Fatal(err)
	}
}

func (c *ControlPlane) endOfTest(t testing.TB) {
	t.Helper()
	if err := c.Err(); err != nil {
		t.Errorf("the control plane broke: %v", err)
	}
	c.Stop()
}

// Shell returns what runs a command as a person would who pastes it into a shell on
// this control plane: kubectl is the one built with it, whatever the machine has, and
// has the credentials of Config. Without that kubectl it skips the test, or fails it
// under CI=true. What is returned may be called concurrently until the test ends.
func (c *ControlPlane) Shell(t testing.TB) func(command string) (output string, err error) {
	t.Helper()
	kubectl := c.Binary("kubectl")
	if kubectl == "" { // not Full, but what is there is there
		found, err := findBinaries(t.Context(), true, false, io.Discard)
		orSkip(t, err)
		kubectl = found.path("kubectl")
	}
	env := append(os.Environ(), "KUBECONFIG="+c.KubeconfigFile(),
		"PATH="+filepath.Dir(kubectl)+string(filepath.ListSeparator)+os.Getenv("PATH"))
	return func(command string) (string, error) {
		sh := exec.CommandContext(t.Context(), "sh", "-c", command)
		sh.Env = env
		out, err := sh.CombinedOutput()
		return string(out), err
	}
}

// Eventually polls f until it is done, and fails the test with the last state that f
// returned when that takes too long.
func Eventually(t testing.TB, within time.Duration, what string, f func() (done bool, state string)) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		done, state := f()
		if done {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("waited %s for %s; last state: %s", within, what, state)
		case <-tick.C:
		}
	}
}

// Shared is one control plane for all tests of a package, started when the
// first one asks for it:
//
//	var plane controlplane.Shared
//
//	func TestMain(m *testing.M) { os.Exit(plane.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		cp := plane.ForTest(t)
//		namespace := cp.Namespace(t)
//		...
type Shared struct {
	Config Config

	once sync.Once
	cp   *ControlPlane
	err  error
}

// ForTest returns the control plane. Without binaries it skips the test, or
// fails it under CI=true.
func (s *Shared) ForTest(t testing.TB) *ControlPlane {
	t.Helper()
	s.once.Do(func() {
		cfg := s.Config
		if cfg.Out == nil {
			cfg.Out = os.Stderr
		}
		// Not the test's context: others use it after this test.
		s.cp, s.err = Start(context.Background(), cfg)
	})
	orSkip(t, s.err)
	if err := s.cp.Err(); err != nil {
		t.Fatalf("the control plane broke: %v", err)
	}
	return s.cp
}

// Main runs the tests, then stops the control plane if one was started, and
// returns the exit code.
func (s *Shared) Main(m interface{ Run() int }) int {
	// A deferred stop runs on a panic of Run too; a panic of a test ends the
	// process here and now, and then the kernel kills the children.
	defer func() {
		if s.cp != nil {
			s.cp.Stop()
		}
	}()
	return m.Run()
}
