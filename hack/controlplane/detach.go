package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
)

// markerFile says that a folder is a control plane's and that Down may remove
// it with all that is in it.
const markerFile = ".steadwatch-controlplane"

func writeMarker(dir string) error {
	text := "This folder is the state of a control plane. hack/controlplane's down command removes it.\n"
	if err := os.WriteFile(filepath.Join(dir, markerFile), []byte(text), 0o600); err != nil {
		return fmt.Errorf("mark the folder: %w", err)
	}
	return nil
}

// Process is one process of a control plane, as found on the machine.
type Process struct {
	Name string
	PID  int
}

// Processes finds the running processes of the control plane in dir by their
// command lines, each of which names a file in dir. Nothing that was written
// down has to be right for that, or still be there.
func Processes(dir string) ([]Process, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	lines, err := commandLines()
	if err != nil {
		return nil, err
	}
	var found []Process
	for pid, line := range lines {
		name := filepath.Base(line[0])
		ours := slices.Contains(wanted(true), name)
		if ours && strings.Contains(strings.Join(line[1:], " "), "="+dir+string(filepath.Separator)) {
			found = append(found, Process{Name: name, PID: pid})
		}
	}
	sort.Slice(found, func(i, j int) bool { return found[i].PID < found[j].PID })
	return found, nil
}

// Check asks the API server of the control plane in dir whether it is ready,
// and returns its URL and version.
func Check(ctx context.Context, dir string) (url, version string, err error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		return "", "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return "", "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if body, err := client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Raw(); err != nil {
		return cfg.Host, "", fmt.Errorf("GET /readyz: %w: %s", err, body)
	}
	info, err := client.ServerVersion()
	if err != nil {
		return cfg.Host, "", err
	}
	return cfg.Host, info.GitVersion, nil
}

// Down kills the processes of the control plane in dir and removes dir. It
// returns how many processes it killed. Dead processes and a missing dir are
// fine. A folder that is no control plane's is left alone, with an error.
func Down(ctx context.Context, dir string) (killed int, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return 0, fmt.Errorf("controlplane: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("controlplane: %w", err)
	}
	if _, err := os.Stat(filepath.Join(dir, markerFile)); err != nil && len(entries) > 0 {
		return 0, fmt.Errorf("controlplane: %s is not the folder of a control plane (it has no %s): nothing was touched", dir, markerFile)
	}

	running, err := Processes(dir)
	if err != nil {
		return 0, fmt.Errorf("controlplane: %w", err)
	}
	killed = len(running)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); len(running) > 0; {
		for _, p := range running {
			// The group, of which each is the leader. Its data goes too, so
			// there is nothing to end in order.
			if err := syscall.Kill(-p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return killed, fmt.Errorf("controlplane: kill %s (pid %d): %w", p.Name, p.PID, err)
			}
		}
		select {
		case <-ctx.Done():
			return killed, fmt.Errorf("controlplane: wait for the processes to end: %w", context.Cause(ctx))
		case <-tick.C:
		}
		if running, err = Processes(dir); err != nil {
			return killed, fmt.Errorf("controlplane: %w", err)
		}
		if len(running) > 0 && time.Since(begin) > 20*time.Second {
			return killed, fmt.Errorf("controlplane: still running after SIGKILL: %v", running)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return killed, fmt.Errorf("controlplane: %w", err)
	}
	return killed, nil
}
