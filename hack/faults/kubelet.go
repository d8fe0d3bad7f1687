package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/install"
)

// replica is one container of the product's Deployment, kept by a stand-in for the
// kubelet: it asks /healthz as the manifests' livenessProbe says, ends a process that
// fails it, and starts one that has ended.
type replica struct {
	i          *installation
	name       string
	kubeconfig string
	args       []string
	stop       func() // returns when the process has ended

	mu        sync.Mutex
	program   *controlplane.Program
	addresses install.Addresses // empty while there is no process that serves
	restarts  []restart
	failed    int // answers of /healthz other than 200, as the kubelet saw them
}

type restart struct {
	at      time.Time
	why     string
	backoff time.Duration // of the kubelet, before the next process
}

// start runs the replica until stop is called or the installation ends. o, unless it
// is nil, looks at it now and again.
func (r *replica) start(o *observer, look time.Duration) {
	ctx, cancel := context.WithCancel(r.i.ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.run(ctx); err != nil {
			r.i.lab.say("%s: %v", r.name, err)
		}
	})
	if o != nil {
		running.Go(func() { o.watch(ctx, r, look) })
	}
	r.i.running.Go(running.Wait)
	r.stop = func() { cancel(); running.Wait() }
}

// run keeps the replica until ctx ends, and then stops it.
func (r *replica) run(ctx context.Context) error {
	p := r.i.lab.liveness
	delay := time.Duration(0)
	for n := 1; ; n++ {
		program, err := r.i.plane.StartProgram(fmt.Sprintf("%s-%d", r.name, n), r.i.lab.binary, r.args...)
		if err != nil {
			return err
		}
		began := time.Now()
		why := r.attend(ctx, program)
		code := program.Stop(p.grace)
		r.set(nil, install.Addresses{})
		if ctx.Err() != nil {
			return nil
		}
		if why == "" {
			why = fmt.Sprintf("ended with %d", code)
		}
		// The first restart comes at once, and one after 10 good minutes too.
		if time.Since(began) > 10*time.Minute {
			delay = 0
		}
		r.mu.Lock()
		r.restarts = append(r.restarts, restart{time.Now(), why, delay})
		r.mu.Unlock()
		if !sleep(ctx, delay) {
			return nil
		}
		delay = min(max(2*delay, p.backoff), p.maxBackoff)
	}
}

// attend returns why the process has to be restarted, "" where it ended by itself or
// ctx did.
func (r *replica) attend(ctx context.Context, program *controlplane.Program) string {
	p := r.i.lab.liveness
	r.set(program, install.Addresses{})
	began, failures := time.Now(), 0
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	next := began.Add(p.delay)
	for {
		select {
		case <-ctx.Done():
			return ""
		case <-program.Done():
			return ""
		case <-tick.C:
		}
		a := r.where()
		if a == (install.Addresses{}) {
			if a = parseAddresses(program.Log()); a != (install.Addresses{}) {
				r.set(program, a)
				tick.Reset(time.Second / 4)
			}
		}
		if time.Now().Before(next) {
			continue
		}
		next = next.Add(p.period)
		code, body := fetch(ctx, p.timeout, a.Health, "/healthz?verbose")
		if code == http.StatusOK || ctx.Err() != nil {
			failures = 0
			continue
		}
		if code != 0 { // Else nothing came in time, on a busy machine.
			r.mu.Lock()
			r.failed++
			r.mu.Unlock()
		}
		if failures++; failures >= p.failures {
			return "liveness: " + failing(code, body)
		}
	}
}

func (r *replica) set(program *controlplane.Program, a install.Addresses) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.program, r.addresses = program, a
}

func (r *replica) where() install.Addresses {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addresses
}

func (r *replica) count() (restarts []restart, failed int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]restart(nil), r.restarts...), r.failed
}

// log is the end of the last process's.
func (r *replica) log() string {
	r.mu.Lock()
	program := r.program
	r.mu.Unlock()
	if program == nil {
		return ""
	}
	s := program.Log()
	return s[max(0, len(s)-6000):]
}

// parseAddresses returns none unless all are there.
func parseAddresses(log string) install.Addresses {
	a := install.Serving(log)
	if a.Health == "" || a.Metrics == "" || a.Debug == "" {
		return install.Addresses{}
	}
	return a
}

// failing names the checks that failed.
func failing(code int, body string) string {
	var names []string
	for line := range strings.Lines(body) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "[-]"); ok {
			name, _, _ = strings.Cut(name, " ")
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return fmt.Sprintf("%d %.80s", code, body)
	}
	return strings.Join(names, ", ")
}

// fetch returns the status and the body, or 0 and an error's text.
func fetch(ctx context.Context, timeout time.Duration, address, path string) (int, string) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(body)
}

// sleep is false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
