package controlplane

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Config says what to start. Its zero value is an etcd and a kube-apiserver
// with all state in a temporary folder.
type Config struct {
	// ExtraAPIServerArgs is appended to the arguments of every API server, so
	// that it wins over what this package sets.
	ExtraAPIServerArgs []string

	// Full adds kube-controller-manager, kube-scheduler and kwok, so that
	// Deployments become Available and Pods Running.
	Full bool
	// NodeCount is the number of fake nodes with Full. 0: 2.
	NodeCount int

	// Audit logs the metadata of every request to every API server, for
	// ControlPlane.Audit.
	Audit bool

	// Dir holds all state; it is created when missing, must be empty, and stays
	// after Stop. Empty: a temporary folder that Stop removes.
	Dir string

	// Fsync makes etcd sync its writes to disk: slower, and durable.
	Fsync bool

	// Detach lets the processes outlive the caller; Down(Dir) ends them. It
	// needs Dir.
	Detach bool

	// Build compiles binaries that are missing.
	Build bool
	// Out gets one line per step for a person who waits. Nil: nothing is said.
	Out io.Writer
}

func (c *Config) complete() error {
	if c.NodeCount < 0 {
		return fmt.Errorf("controlplane: Config.NodeCount is %d: it must be 0 (for the default of 2) or more", c.NodeCount)
	}
	if c.NodeCount == 0 {
		c.NodeCount = 2
	}
	if c.Detach && c.Dir == "" {
		return errors.New("controlplane: Config.Detach needs Config.Dir, by which Down finds the processes again")
	}
	if c.Out == nil {
		c.Out = io.Discard
	}
	if os.Getenv("STEADWATCH_BUILD_CONTROLPLANE") == "1" {
		c.Build = true
	}
	if c.Dir == "" {
		return nil
	}
	abs, err := filepath.Abs(c.Dir)
	if err != nil {
		return fmt.Errorf("controlplane: resolve Config.Dir %q: %w", c.Dir, err)
	}
	c.Dir = abs
	if entries, err := os.ReadDir(abs); err == nil && len(entries) > 0 {
		return fmt.Errorf("controlplane: Config.Dir %s is not empty: name an empty folder, or clear this one with Down", abs)
	}
	return nil
}
