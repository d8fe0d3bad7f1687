package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// ControlPlane is a running control plane. Its methods may be called from
// several goroutines.
type ControlPlane struct {
	cfg   Config
	dir   string
	bin   binaries
	ca    *authority
	admin *rest.Config
	etcd  *etcd
	lock  *os.File // held while a temporary dir is in use; nil otherwise

	mu      sync.Mutex
	apis    []*APIServer
	added   int
	extras  []*server // what Full adds, in the order of their start
	stopped bool

	programs []*process

	audit auditReader
}

// startTimeout bounds the start when the caller's context does not: it takes 4
// seconds on an idle machine.
const startTimeout = 3 * time.Minute

// Start starts a control plane and returns when it is ready. The returned
// control plane is not tied to ctx: call Stop. It returns ErrNoBinaries if
// there is nothing to run and Config.Build is false.
func Start(ctx context.Context, cfg Config) (*ControlPlane, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	bin, err := findBinaries(ctx, cfg.Full, cfg.Build, cfg.Out)
	if err != nil {
		return nil, fmt.Errorf("controlplane: %w", err)
	}
	// After the build, which takes the time it takes.
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	c := &ControlPlane{cfg: cfg, bin: bin}
	if err := c.start(ctx); err != nil {
		c.Stop()
		return nil, fmt.Errorf("controlplane: %w", err)
	}
	return c, nil
}

func (c *ControlPlane) start(ctx context.Context) (err error) {
	if err := c.makeDir(); err != nil {
		return err
	}
	if c.ca, err = newAuthority(); err != nil {
		return err
	}
	if err := writePKI(filepath.Join(c.dir, "pki"), c.ca); err != nil {
		return err
	}
	if c.admin, err = c.userConfig("steadwatch-admin", []string{"system:masters"}); err != nil {
		return err
	}
	if c.cfg.Audit {
		if err := writeAuditPolicy(c.dir); err != nil {
			return err
		}
	}

	c.say("starting etcd")
	err = withFreshPorts(func() (err error) {
		if c.etcd, err = newEtcd(c.bin.path("etcd"), &c.cfg); err != nil {
			return err
		}
		// A half-started member has written its peer URL there.
		if err := os.RemoveAll(c.etcd.data); err != nil {
			return err
		}
		return c.etcd.start(ctx)
	})
	if err != nil {
		return err
	}
	c.say("starting kube-apiserver")
	if _, err := c.AddAPIServer(ctx); err != nil {
		return err
	}
	if err := c.WriteKubeconfig(c.KubeconfigFile(), c.Config()); err != nil {
		return err
	}
	if c.cfg.Full {
		return c.startFull(ctx)
	}
	return nil
}

// withFreshPorts repeats f, which is to choose ports, while one of them was
// taken between its choice and its use.
func withFreshPorts(f func() error) error {
	var err error
	for range 5 {
		if err = f(); !errors.Is(err, errPortTaken) {
			return err
		}
	}
	return err
}

const tempPrefix = "steadwatch-controlplane-"

func (c *ControlPlane) makeDir() error {
	if c.cfg.Dir != "" {
		c.dir = c.cfg.Dir
		if err := os.MkdirAll(c.dir, 0o700); err != nil {
			return fmt.Errorf("create Config.Dir: %w", err)
		}
		return writeMarker(c.dir)
	}
	sweep()
	dir, err := os.MkdirTemp("", tempPrefix)
	if err != nil {
		return fmt.Errorf("create a temporary folder: %w", err)
	}
	c.dir, c.cfg.Dir = dir, dir
	lock, err := lockFile(filepath.Join(dir, "lock"), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		return err
	}
	c.lock = lock
	return nil
}

// sweep removes the temporary folders of test binaries that were killed: those
// whose lock nobody holds.
func sweep() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), tempPrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue // perhaps not locked yet
		}
		lock, err := lockFile(filepath.Join(dir, "lock"), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(dir)
		_ = lock.Close()
	}
}

// lockFile opens a file and locks it; closing it, or the end of this process,
// gives the lock back. The file is not inherited by children.
func lockFile(name string, how int) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open a lock file: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), how); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}

// Dir is the folder that holds all state; the logs are in its folder logs.
func (c *ControlPlane) Dir() string { return c.dir }

// Err is non-nil if a process ended that nobody stopped, with the end of its
// log.
func (c *ControlPlane) Err() error {
	var errs []error
	for _, s := range c.servers() {
		errs = append(errs, s.failure())
	}
	return errors.Join(errs...)
}

// servers is every process in the order of their start.
func (c *ControlPlane) servers() []*server {
	var all []*server
	if c.etcd != nil {
		all = append(all, &c.etcd.server)
	}
	for _, a := range c.apiServers() {
		all = append(all, &a.server)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(all, c.extras...)
}

// Stop ends every process, paused ones too, and removes the folder if it is a
// temporary one. Nothing is saved for later, so nobody is asked to end in
// order. It may be called more than once.
func (c *ControlPlane) Stop() {
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return
	}
	c.stopped = true
	programs := c.programs
	c.mu.Unlock()
	for _, p := range programs {
		p.stop(0)
	}
	all := c.servers()
	for i := len(all) - 1; i >= 0; i-- {
		all[i].kill()
	}
	if c.lock != nil {
		_ = os.RemoveAll(c.dir)
		_ = c.lock.Close()
	}
}

func (c *ControlPlane) say(format string, args ...any) {
	fmt.Fprintf(c.cfg.Out, format+"\n", args...)
}
