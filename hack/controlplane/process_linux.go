package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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

// commandLines is the command line of every process we may see, by pid.
func commandLines() (map[int][]string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return nil, err
	}
	lines := map[int][]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil || len(data) == 0 {
			continue // ended meanwhile, or a zombie
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, fmt.Errorf("parse %s: %w", file, err)
		}
		lines[pid] = strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00")
	}
	return lines, nil
}
