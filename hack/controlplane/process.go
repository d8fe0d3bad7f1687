package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

var errPortTaken = errors.New("port is taken")

// spec is a process to run.
type spec struct {
	name string // unique within a control plane; names its log
	path string
	args []string
	dir  string // of the control plane
	// detached lets it outlive the process that starts it.
	detached bool
}

// process is a running (or ended) child, leader of its own process group.
type process struct {
	spec
	cmd  *exec.Cmd
	done chan struct{} // closed once it has been waited for
	err  error         // how it ended; read after done

	mu    sync.Mutex
	asked bool // somebody here ended it
}

// forker is the one OS thread that starts the children that must not outlive
// this process. The kernel sends a child its parent-death signal when the
// *thread* that forked it ends (prctl(2), PR_SET_PDEATHSIG), and the Go runtime
// ends threads as it pleases, so this one is locked and never returns.
var forker = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

func startProcess(s spec) (*process, error) {
	if err := os.MkdirAll(filepath.Join(s.dir, "logs"), 0o700); err != nil {
		return nil, fmt.Errorf("create the logs' folder: %w", err)
	}
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", s.name, err)
	}
	defer log.Close()

	p := &process{spec: s, cmd: exec.Command(s.path, s.args...), done: make(chan struct{})}
	p.cmd.Dir = s.dir
	// Files, not pipes: no goroutine to join, and a detached process keeps them.
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// The children get no proxy and no credentials from the environment.
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + s.dir, "TMPDIR=" + s.dir, "GOTRACEBACK=single"}
	p.cmd.SysProcAttr = sysProcAttr(s.detached)

	started := make(chan error, 1)
	forker() <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (s spec) logFile() string { return filepath.Join(s.dir, "logs", s.name+".log") }

// signal signals the whole process group. A group that is gone is no error.
func (p *process) signal(sig syscall.Signal) error {
	select {
	case <-p.done: // its pid may be somebody else's by now
		return nil
	default:
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to %s: %w", sig, p.name, err)
	}
	return nil
}

// stop ends the process group: SIGTERM, and SIGKILL after grace. It returns
// once the process has been waited for.
func (p *process) stop(grace time.Duration) {
	p.mu.Lock()
	p.asked = true
	p.mu.Unlock()
	if grace > 0 {
		_ = p.signal(syscall.SIGTERM)
		_ = p.signal(syscall.SIGCONT) // a stopped process gets no SIGTERM
		select {
		case <-p.done:
		case <-time.After(grace):
		}
	}
	_ = p.signal(syscall.SIGKILL)
	<-p.done
}

// failure is non-nil once the process has ended and nobody asked for it.
func (p *process) failure() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked {
		return nil
	}
	tail := p.tail()
	err := fmt.Errorf("%s ended early (%v); end of %s:\n%s", p.name, p.err, p.logFile(), tail)
	if strings.Contains(tail, "address already in use") {
		return fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return err
}

// tail is the end of the log, for error messages.
func (p *process) tail() string {
	const most = 2500
	f, err := os.Open(p.logFile())
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if size, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(0, size-most), io.SeekStart)
	}
	data, _ := io.ReadAll(io.LimitReader(f, most))
	text := string(data)
	if len(text) == most { // begin with a whole line
		if _, rest, found := strings.Cut(text, "\n"); found {
			text = rest
		}
	}
	return strings.TrimSpace(text)
}

// await polls ready until it returns nil, the process ends or ctx does.
func (p *process) await(ctx context.Context, what string, ready func(context.Context) error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var last error
	for {
		err := p.try(ctx, ready)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-p.done:
			if err := p.failure(); err != nil {
				return err
			}
			return fmt.Errorf("wait for %s of %s: it was stopped meanwhile", what, p.name)
		case <-ctx.Done():
			return fmt.Errorf("wait for %s of %s: %w; last answer: %w; end of its log:\n%s", what, p.name, context.Cause(ctx), last, p.tail())
		case <-tick.C:
		}
	}
}

// try is one call of ready, which ends with the process: on a taken port it may
// be talking to somebody who never answers.
func (p *process) try(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	go func() {
		select {
		case <-p.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ready(ctx)
}

// freePort returns a TCP port of 127.0.0.1 that nobody listens on. It is taken
// from below the range that kernels give to outgoing connections: one of those
// would occupy the port of a server that is being restarted.
func freePort() (int, error) {
	var last error
	for range 100 {
		port := 15000 + rand.IntN(17000)
		l, err := net.Listen("tcp4", net.JoinHostPort(loopback, strconv.Itoa(port)))
		if err != nil {
			last = err
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("find a free port between 15000 and 32000: %w", last)
}
