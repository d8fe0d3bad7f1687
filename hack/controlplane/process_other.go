//go:build unix && !linux

package controlplane

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// There is no parent-death signal here: see the package's caveats.
func sysProcAttr(detached bool) *syscall.SysProcAttr {
	if detached {
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true}
}

// awaitStopped gives SIGSTOP time to take effect: only Linux lets us look.
func (p *process) awaitStopped(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(200 * time.Millisecond):
		return nil
	}
}

// commandLine is the command line of a process, empty if there is none.
func commandLine(pid int) string {
	out, err := exec.Command("ps", "-ww", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
