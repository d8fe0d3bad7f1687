package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

func sysProcAttr(detached bool) *syscall.SysProcAttr {
	if detached {
		// A session of its own: the terminal's Ctrl-C and hang-up do not reach it.
		return &syscall.SysProcAttr{Setsid: true}
	}
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStopped returns once SIGSTOP has stopped every thread of the process:
// the signal's sender does not wait for that.
func (p *process) awaitStopped(ctx context.Context) error {
	pattern := fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid)
	return p.await(ctx, "the stop", func(context.Context) error {
		tasks, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		for _, task := range tasks {
			data, err := os.ReadFile(task)
			if err != nil {
				continue // the thread has ended
			}
			// "pid (name) state ...": the name may hold spaces and parentheses.
			_, rest, _ := strings.Cut(string(data[strings.LastIndexByte(string(data), ')')+1:]), " ")
			if !strings.HasPrefix(rest, "T") {
				return fmt.Errorf("a thread is still in state %.1s", rest)
			}
		}
		return nil
	})
}

// commandLine is the command line of a process, empty if there is none.
func commandLine(pid int) string {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(string(data), "\x00", " ")
}

