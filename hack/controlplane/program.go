package controlplane

import (
	"context"
	"fmt"
	"os"
	"time"
)

// Program is a program that runs beside the control plane, usually the
// controller under test as a process of its own, and dies with it.
type Program struct{ p *process }

// StartProgram starts a program in the control plane's folder with next to no
// environment. Its output goes to a log whose name is name, which has to be
// unique within the control plane; a second program of the same name appends.
func (c *ControlPlane) StartProgram(name, path string, args ...string) (*Program, error) {
	p, err := startProcess(spec{name: name, path: path, args: args, dir: c.dir})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		p.stop(0)
		return nil, fmt.Errorf("start %s: the control plane is stopped", name)
	}
	c.programs = append(c.programs, p)
	return &Program{p: p}, nil
}

// Done is closed once the program has ended.
func (g *Program) Done() <-chan struct{} { return g.p.done }

// ExitCode is -1 while the program runs and if a signal ended it.
func (g *Program) ExitCode() int {
	select {
	case <-g.p.done:
		return g.p.cmd.ProcessState.ExitCode()
	default:
		return -1
	}
}

// Until polls f, which also returns what it sees, until that is done, and fails if the
// program or ctx ends first.
func (g *Program) Until(ctx context.Context, what string, f func() (done bool, seen string)) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		done, seen := f()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; last seen: %s", what, context.Cause(ctx), seen)
		case <-g.Done():
			return fmt.Errorf("wait for %s: the program ended with exit code %d:\n%s", what, g.ExitCode(), g.Log())
		case <-tick.C:
		}
	}
}

// PID is the program's process id, which is its process group's too.
func (g *Program) PID() int { return g.p.cmd.Process.Pid }

// Stop sends SIGTERM, and SIGKILL after grace (0: at once), and returns the
// exit code.
func (g *Program) Stop(grace time.Duration) int {
	g.p.stop(grace)
	return g.ExitCode()
}

// LogFile is the path of the program's output, stdout and stderr together.
func (g *Program) LogFile() string { return g.p.logFile() }

// Log is all the program has written so far.
func (g *Program) Log() string {
	data, err := os.ReadFile(g.p.logFile())
	if err != nil {
		return err.Error()
	}
	return string(data)
}
