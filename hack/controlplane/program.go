package controlplane

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// Program is a program under test that runs beside the control plane as a
// process of its own, so that it can be killed, stopped and woken. Like the
// control plane it does not outlive the process that started it.
type Program struct{ p *process }

// StartProgram starts the program at path. name must be unique among those of
// this control plane; output goes to the file that LogFile names.
func (c *ControlPlane) StartProgram(name, path string, args ...string) (*Program, error) {
	p, err := startProcess(spec{name: name, path: path, args: args, dir: c.dir})
	if err != nil {
		return nil, err
	}
	return &Program{p}, nil
}

// Stop sends SIGTERM, after grace SIGKILL, and returns the exit code; -1 if a
// signal ended the program.
func (p *Program) Stop(grace time.Duration) int {
	p.p.stop(grace)
	return p.p.cmd.ProcessState.ExitCode()
}

// Terminate sends SIGTERM and does not wait.
func (p *Program) Terminate() error { return p.p.signal(syscall.SIGTERM) }

// Pause stops every thread of the program (SIGSTOP) and returns once they have
// stopped.
func (p *Program) Pause(ctx context.Context) error {
	if err := p.p.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return p.p.awaitStopped(ctx)
}

// Resume undoes Pause.
func (p *Program) Resume() error { return p.p.signal(syscall.SIGCONT) }

// Done is closed once the program has ended, for whatever reason.
func (p *Program) Done() <-chan struct{} { return p.p.done }

// ExitCode is the exit code of a program that is done; -1 if a signal ended it.
func (p *Program) ExitCode() int {
	<-p.p.done
	return p.p.cmd.ProcessState.ExitCode()
}

// PID is the program's process ID.
func (p *Program) PID() int { return p.p.cmd.Process.Pid }

// Log is what the program has printed so far.
func (p *Program) Log() string {
	data, err := os.ReadFile(p.p.logFile())
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	return string(data)
}

// LogFile is where its output goes; it is appended to by programs of the same
// name.
func (p *Program) LogFile() string { return p.p.logFile() }

// WriteKubeconfig writes a kubeconfig with the server, CA and credentials
// (client certificate or token) of cfg.
func (c *ControlPlane) WriteKubeconfig(file string, cfg *rest.Config) error {
	return c.writeKubeconfig(file, cfg)
}
