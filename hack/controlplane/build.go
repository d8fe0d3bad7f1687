package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// buildInto compiles the named binaries into the cache. Two processes never
// build at once: the second waits and finds the first one's work.
func buildInto(ctx context.Context, module, cache string, names []string, out io.Writer) error {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return fmt.Errorf("create the cache folder: %w", err)
	}
	lock, err := awaitLock(ctx, filepath.Join(cache, "lock"), out)
	if err != nil {
		return err
	}
	defer lock.Close()
	names = take(binaries{}, names, cache)
	if len(names) == 0 {
		return nil
	}

	fmt.Fprintf(out, "compiling the control plane into %s\n", cache)
	fmt.Fprintf(out, "the first time this takes about 15 minutes on 2 cores; after that nothing is compiled again\n")
	begin := time.Now()
	for i, name := range names {
		step := fmt.Sprintf("[%d/%d] %s", i+1, len(names), name)
		if name == stagesFile {
			err = copyStages(ctx, module, cache)
		} else {
			err = compile(ctx, module, cache, name, step, out)
		}
		if err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
		fmt.Fprintf(out, "%s done, %s since the start\n", step, time.Since(begin).Round(time.Second))
	}
	return nil
}

// awaitLock takes the lock, and says so when somebody else holds it.
func awaitLock(ctx context.Context, file string, out io.Writer) (*os.File, error) {
	for told := false; ; {
		lock, err := lockFile(file, syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return lock, err
		}
		if !told {
			fmt.Fprintf(out, "another process is compiling the control plane; waiting for it (lock %s)\n", file)
			told = true
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the other build: %w", context.Cause(ctx))
		case <-time.After(time.Second):
		}
	}
}

// compile builds one binary beside its place and moves it there when it is
// whole.
func compile(ctx context.Context, module, cache, name, step string, out io.Writer) error {
	i := slices.IndexFunc(packages, func(p mainPackage) bool { return p.binary == name })
	partial := filepath.Join(cache, "."+name+".partial")
	defer os.Remove(partial)

	args := append([]string{"build", "-v", "-o", partial}, buildFlags...)
	cmd := goCommand(ctx, module, append(args, packages[i].path)...)
	// go build is interrupted, not killed: it removes its temporary folder.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	tail := follow(stderr, step, out)
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if strings.Contains(tail, "no space left on device") {
			return fmt.Errorf("the disk is full: the build needs about 5 GB in Go's build cache (go env GOCACHE), its temporary folder (%s) and %s:\n%s", os.TempDir(), cache, tail)
		}
		return fmt.Errorf("%w; last lines:\n%s", err, tail)
	}
	return os.Rename(partial, filepath.Join(cache, name))
}

// follow reads the names of compiled packages that go build -v writes, gives a
// sign of life every 15 seconds, and returns the last lines.
func follow(r io.Reader, step string, out io.Writer) (tail string) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(r)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			lines <- s.Text()
		}
		_, _ = io.Copy(io.Discard, r)
	}()
	tick := time.NewTicker(15 * time.Second)
	defer tick.Stop()
	var last []string
	var compiled int
	begin := time.Now()
	fmt.Fprintf(out, "%s\n", step)
	for {
		select {
		case line, ok := <-lines:
			if !ok {
				return strings.Join(last, "\n")
			}
			compiled++
			last = append(last, line)
			if len(last) > 25 {
				last = last[1:]
			}
		case <-tick.C:
			fmt.Fprintf(out, "%s: %s, %d packages compiled so far\n", step, time.Since(begin).Round(time.Second), compiled)
		}
	}
}

// kwokStages are those of a node that is always ready and of Pods that become
// ready at once, Jobs' Pods that end, and Pods that go when deleted.
var kwokStages = []string{
	"node/fast/node-initialize.yaml",
	"node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
	"pod/fast/pod-ready.yaml",
	"pod/fast/pod-complete.yaml",
	"pod/fast/pod-delete.yaml",
}

func copyStages(ctx context.Context, module, cache string) error {
	dir, err := goCommand(ctx, module, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok").Output()
	if err != nil {
		return fmt.Errorf("find kwok's module: %w", err)
	}
	root := string(bytes.TrimSpace(dir))
	if root == "" {
		return errors.New("kwok's module is not in the module cache: run go mod download sigs.k8s.io/kwok in " + module)
	}
	var all bytes.Buffer
	for _, stage := range kwokStages {
		data, err := os.ReadFile(filepath.Join(root, "kustomize", "stage", filepath.FromSlash(stage)))
		if err != nil {
			return fmt.Errorf("read one of kwok's stages: %w", err)
		}
		fmt.Fprintf(&all, "---\n%s\n", bytes.TrimSpace(data))
	}
	partial := filepath.Join(cache, "."+stagesFile+".partial")
	if err := os.WriteFile(partial, all.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(partial, filepath.Join(cache, stagesFile))
}
