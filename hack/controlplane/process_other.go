//go:build unix && !linux

package controlplane

import (
	"context"
	"fmt"
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

// commandLines is the command line of every process we may see, by pid. ps
// joins arguments by spaces; a path with a space in it comes out in pieces.
func commandLines() (map[int][]string, error) {
	out, err := exec.Command("ps", "-axww", "-o", "pid=,args=").Output()
	if err != nil {
		return nil, fmt.Errorf("list processes with ps: %w", err)
	}
	lines := map[int][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if pid, err := strconv.Atoi(fields[0]); err == nil {
			lines[pid] = fields[1:]
		}
	}
	return lines, nil
}
