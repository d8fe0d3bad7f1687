package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// fakeGo puts a "go" command in front of PATH, an empty cache behind
// os.UserCacheDir, and no KUBEBUILDER_ASSETS. Its builds run script, with the
// file to write in $out; each is a line in the returned file.
func fakeGo(t *testing.T, script string) (builds string) {
	t.Helper()
	dir := t.TempDir()
	builds = filepath.Join(dir, "builds")
	text := fmt.Sprintf(`#!/bin/sh
case "$1" in
env) echo go1.99 ;;
list) echo %q ;;
build)
  out=$4
  echo "$out $CGO_ENABLED $GOFLAGS" >>%q
  %s ;;
esac
`, filepath.Join(dir, "kwok"), builds, script)
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	t.Setenv("HOME", dir)
	t.Setenv("KUBEBUILDER_ASSETS", "")
	return builds
}

func TestBuildOnceForTwoProcesses(t *testing.T) {
	builds := fakeGo(t, `sleep 0.3; echo binary >"$out"`)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			found, err := findBinaries(t.Context(), false, true, &strings.Builder{})
			if err != nil || found["etcd"] == "" || found["kube-apiserver"] == "" {
				t.Errorf("findBinaries = %v, %v", found, err)
			}
		})
	}
	wg.Wait()
	data, err := os.ReadFile(builds)
	if lines := strings.Count(string(data), "\n"); err != nil || lines != 2 {
		t.Errorf("%d builds, %v; want one of etcd and one of kube-apiserver:\n%s", lines, err, data)
	}
	if _, err := findBinaries(t.Context(), false, false, &strings.Builder{}); err != nil {
		t.Errorf("the cache is not used: %v", err)
	}
}

func TestBuildFailures(t *testing.T) {
	for name, test := range map[string]struct {
		reason, script string
		want           []string
	}{
		"compile error": {
			reason: "the compiler's own words are what helps",
			script: `echo k8s.io/some/pkg >&2; echo "x.go:1: undefined: y" >&2; exit 1`,
			want:   []string{"build etcd", "undefined: y"},
		},
		"disk full": {
			reason: "the fix is elsewhere than the message points to",
			script: `echo half >"$out"; echo "write /tmp/x: no space left on device" >&2; exit 1`,
			want:   []string{"the disk is full", "GOCACHE"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			fakeGo(t, test.script)
			_, err := findBinaries(t.Context(), false, true, &strings.Builder{})
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q in it: %s", err, want, test.reason)
				}
			}
			root, _ := os.UserCacheDir()
			left, _ := filepath.Glob(filepath.Join(root, "steadwatch", "controlplane", "*", "*etcd*"))
			hidden, _ := filepath.Glob(filepath.Join(root, "steadwatch", "controlplane", "*", ".*"))
			if len(left)+len(hidden) > 0 {
				t.Errorf("left behind: %v %v", left, hidden)
			}
		})
	}
}

func TestFindBinariesRefusals(t *testing.T) {
	t.Run("nothing is built", func(t *testing.T) {
		fakeGo(t, "exit 1")
		_, err := findBinaries(t.Context(), false, false, &strings.Builder{})
		if !errors.Is(err, ErrNoBinaries) || !strings.Contains(err.Error(), "cmd/controlplane build") {
			t.Errorf("got %v, want ErrNoBinaries and the way out", err)
		}
	})
	t.Run("KUBEBUILDER_ASSETS is incomplete", func(t *testing.T) {
		fakeGo(t, "exit 1")
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "etcd"), nil, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Setenv("KUBEBUILDER_ASSETS", dir)
		_, err := findBinaries(t.Context(), false, true, &strings.Builder{})
		if err == nil || !strings.Contains(err.Error(), "holds no kube-apiserver") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("there is no go", func(t *testing.T) {
		fakeGo(t, "exit 1")
		t.Setenv("PATH", t.TempDir())
		_, err := findBinaries(t.Context(), false, true, &strings.Builder{})
		if err == nil || !strings.Contains(err.Error(), "go command is not in PATH") {
			t.Errorf("got %v", err)
		}
	})
}

// TestVersionIsThatOfTheModule fails when binaries/go.mod moves on and the
// version that the binaries report does not.
func TestVersionIsThatOfTheModule(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("binaries", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), "k8s.io/kubernetes "+kubernetesVersion) {
		t.Errorf("binaries/go.mod has no k8s.io/kubernetes %s: change kubernetesVersion with it", kubernetesVersion)
	}
}
