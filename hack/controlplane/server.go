package controlplane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"
)

// server is a process that can be paused, stopped and started again.
type server struct {
	spec  func() spec
	ready func(context.Context) error
	grace time.Duration // between SIGTERM and SIGKILL

	mu     sync.Mutex
	proc   *process // nil: never started, or stopped
	paused bool
	began  time.Time
	gone   error // how a process ended that nobody stopped
}

// start starts the process and waits until it is ready. It is an error if it
// runs already.
func (s *server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil && s.proc.failure() == nil {
		return fmt.Errorf("start %s: it is running", s.proc.name)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	began := time.Now()
	p, err := startProcess(s.spec())
	if err != nil {
		return err
	}
	if err := p.await(ctx, "readiness", s.ready); err != nil {
		p.stop(0)
		return err
	}
	s.proc, s.paused, s.began = p, false, began
	return nil
}

// restart is start for a port that has to be the same one: it is tried again
// for as long as the port is somebody else's.
func (s *server) restart(ctx context.Context) error {
	for {
		err := s.start(ctx)
		if !errors.Is(err, errPortTaken) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// stop is a no-op if it does not run.
func (s *server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(s.grace)
}

// kill is stop without notice, as a crash would be.
func (s *server) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(0)
}

func (s *server) end(grace time.Duration) {
	if s.proc == nil {
		return
	}
	s.gone = errors.Join(s.gone, s.proc.failure())
	s.proc.stop(grace)
	s.proc, s.paused = nil, false
}

// pause stops every thread of the process (SIGSTOP): its connections stay open
// and nobody answers on them.
func (s *server) pause(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return errors.New("pause: the server does not run")
	}
	if err := s.proc.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	s.paused = true
	return s.proc.awaitStopped(ctx)
}

// resume undoes pause; without one it does nothing.
func (s *server) resume() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || !s.paused {
		return nil
	}
	s.paused = false
	return s.proc.signal(syscall.SIGCONT)
}

// failure is non-nil if a process ended that nobody stopped.
func (s *server) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return s.gone
	}
	return errors.Join(s.gone, s.proc.failure())
}
