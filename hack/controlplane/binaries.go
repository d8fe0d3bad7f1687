package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// ErrNoBinaries is returned by Start when there are no binaries to run and
// Config.Build does not ask for them to be compiled.
var ErrNoBinaries = errors.New("the control plane's binaries are not built")

// stagesFile is what kwok does to nodes and Pods; it is copied from kwok's
// module and kept next to the binaries.
const stagesFile = "kwok-stages.yaml"

// kubernetesVersion is what the binaries report; it has to be the version of
// k8s.io/kubernetes in binaries/go.mod.
const kubernetesVersion = "v1.37.2"

const ldflags = "-s -w" +
	" -X k8s.io/component-base/version.gitVersion=" + kubernetesVersion +
	" -X k8s.io/component-base/version.gitMajor=1" +
	" -X k8s.io/component-base/version.gitMinor=37" +
	" -X k8s.io/client-go/pkg/version.gitVersion=" + kubernetesVersion

// Changing a flag means compiling all of Kubernetes again, everywhere.
var buildFlags = []string{"-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags", ldflags}

type mainPackage struct {
	binary, path string
	full         bool // only needed with Config.Full
}

// packages to compile, in the order in which they are.
var packages = []mainPackage{
	{"etcd", "go.etcd.io/etcd/server/v3", false},
	{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver", false},
	{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager", true},
	{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler", true},
	{"kubectl", "k8s.io/kubernetes/cmd/kubectl", true},
	{"kwok", "sigs.k8s.io/kwok/cmd/kwok", true},
}

// binaries maps the name of a binary (or stagesFile) to its path.
type binaries map[string]string

func (b binaries) path(name string) string { return b[name] }

// wanted lists what a plain or a full control plane needs.
func wanted(full bool) []string {
	var names []string
	for _, p := range packages {
		if full || !p.full {
			names = append(names, p.binary)
		}
	}
	if full {
		names = append(names, stagesFile)
	}
	return names
}

// findBinaries looks in KUBEBUILDER_ASSETS, then in the cache, then compiles
// what is still missing if build allows it.
func findBinaries(ctx context.Context, full, build bool, out io.Writer) (binaries, error) {
	found := binaries{}
	missing := wanted(full)
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		abs, err := filepath.Abs(assets)
		if err != nil {
			return nil, fmt.Errorf("resolve KUBEBUILDER_ASSETS=%s: %w", assets, err)
		}
		missing = take(found, missing, abs)
		for _, name := range []string{"etcd", "kube-apiserver"} {
			if found[name] == "" {
				return nil, fmt.Errorf("KUBEBUILDER_ASSETS=%s holds no %s: unset it, or name a folder with etcd and kube-apiserver", assets, name)
			}
		}
		if len(missing) == 0 {
			return found, nil
		}
	}

	module, err := moduleDir()
	if err != nil {
		return nil, err
	}
	cache, err := cacheDir(ctx, module)
	if err != nil {
		return nil, err
	}
	missing = take(found, missing, cache)
	if len(missing) == 0 {
		return found, nil
	}
	if !build {
		return nil, fmt.Errorf("%w: %s missing in %s; \"go run ./hack/controlplane/cmd/controlplane build\" compiles them (once, about 15 minutes on 2 cores)",
			ErrNoBinaries, strings.Join(missing, ", "), cache)
	}
	if err := buildInto(ctx, module, cache, missing, out); err != nil {
		return nil, err
	}
	if missing = take(found, missing, cache); len(missing) > 0 {
		return nil, fmt.Errorf("%s vanished from %s after the build: is something cleaning that folder?", strings.Join(missing, ", "), cache)
	}
	return found, nil
}

// take adds to found what dir holds of names and returns the rest.
func take(found binaries, names []string, dir string) (missing []string) {
	for _, name := range names {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			found[name] = file
		} else {
			missing = append(missing, name)
		}
	}
	return missing
}

// Build compiles what is missing in the cache of the named binaries (none: all
// that a full control plane needs), telling out how far it is, and returns the
// folder.
func Build(ctx context.Context, out io.Writer, names ...string) (dir string, err error) {
	all := wanted(true)
	if len(names) == 0 {
		names = all
	}
	for _, name := range names {
		if !slices.Contains(all, name) {
			return "", fmt.Errorf("controlplane: there is no binary %q: choose from %s", name, strings.Join(all, ", "))
		}
	}
	module, err := moduleDir()
	if err != nil {
		return "", fmt.Errorf("controlplane: %w", err)
	}
	cache, err := cacheDir(ctx, module)
	if err != nil {
		return "", fmt.Errorf("controlplane: %w", err)
	}
	if missing := take(binaries{}, names, cache); len(missing) > 0 {
		if err := buildInto(ctx, module, cache, missing, out); err != nil {
			return "", fmt.Errorf("controlplane: %w", err)
		}
	}
	return cache, nil
}

// moduleDir finds the nested module from the working folder, which for tests
// is the folder of their package.
func moduleDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working folder: %w", err)
	}
	for at := dir; ; {
		module := filepath.Join(at, "hack", "controlplane", "binaries")
		if _, err := os.Stat(filepath.Join(module, "go.mod")); err == nil {
			return module, nil
		}
		parent := filepath.Dir(at)
		if parent == at {
			return "", fmt.Errorf("no hack/controlplane/binaries/go.mod above %s: run this inside a checkout of steadwatch, or set KUBEBUILDER_ASSETS", dir)
		}
		at = parent
	}
}

// cacheDir is the folder for exactly these versions, this Go and these flags.
func cacheDir(ctx context.Context, module string) (string, error) {
	root, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	version, err := goCommand(ctx, module, "env", "GOVERSION").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return "", errors.New("the go command is not in PATH: install Go, or set KUBEBUILDER_ASSETS to a folder with etcd and kube-apiserver")
	}
	if err != nil {
		return "", fmt.Errorf("run go env GOVERSION in %s: %w", module, err)
	}
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("read the versions of the binaries: %w", err)
		}
		fmt.Fprintf(h, "%s %d\n%s", name, len(data), data)
	}
	fmt.Fprintf(h, "%s %s/%s %q", version, runtime.GOOS, runtime.GOARCH, buildFlags)
	return filepath.Join(root, "steadwatch", "controlplane", hex.EncodeToString(h.Sum(nil))[:16]), nil
}

// goCommand is a go command in the nested module, sheltered from settings that
// would change what is built.
func goCommand(ctx context.Context, module string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=", "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	return cmd
}
