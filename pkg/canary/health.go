package canary

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
)

// checkTimeout bounds what one request waits for its checks. It is shorter than
// the kubelet's default of one second for a probe, so that a check which hangs
// is named in an answer instead of leaving the probe without one.
const checkTimeout = 800 * time.Millisecond

// Check is one named condition of this process.
type Check struct {
	// Name appears in answers and is the last element of the check's own path.
	Name string
	// Check returns nil while the condition holds. It is called for each
	// request, from several goroutines, and should not block.
	Check func() error
	// Note, if set, returns what is worth knowing under ?verbose while the condition
	// holds, in one line, or "". It should not block either.
	Note func() string
}

// note is Note for the end of a line.
func (c *Check) note() string {
	if c.Note == nil {
		return ""
	}
	if note := c.Note(); note != "" {
		return ": " + note
	}
	return ""
}

// Handler serves checks at path and each one alone at path/<name>, in the form
// of Kubernetes components: "ok", or one line for each check when one fails or
// ?verbose is given. ?exclude=<name> leaves a check out, and may be repeated;
// a name that matches no check is warned about, as is done by
// k8s.io/apiserver/pkg/server/healthz. A check named ping, which always holds,
// is added in front. The status is 200 or 503.
//
// Mount it for path and for path + "/". Handler panics if two checks have the
// same name.
func Handler(path string, checks ...Check) http.Handler {
	h := &handler{path: path}
	h.checks = append(h.checks, &probe{Check: Check{Name: "ping", Check: func() error { return nil }}})
	for _, c := range checks {
		if h.find(c.Name) != nil {
			panic(fmt.Sprintf("canary: two checks named %q at %s", c.Name, path))
		}
		h.checks = append(h.checks, &probe{Check: c})
	}
	return h
}

type handler struct {
	path   string
	checks []*probe
}

func (h *handler) find(name string) *probe {
	i := slices.IndexFunc(h.checks, func(p *probe) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return h.checks[i]
}

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	_, verbose := r.URL.Query()["verbose"]
	name := strings.Trim(strings.TrimPrefix(r.URL.Path, h.path), "/")
	if name != "" {
		h.serveOne(w, r, name, verbose)
		return
	}

	excluded := sets.New(r.URL.Query()["exclude"]...)
	var asked []*probe
	for _, p := range h.checks {
		if !excluded.Has(p.Name) {
			asked = append(asked, p)
		}
	}
	errs := runAll(asked)

	var out strings.Builder
	var failed []string
	for _, p := range h.checks {
		err, ran := errs[p]
		switch {
		case !ran:
			fmt.Fprintf(&out, "[+]%s excluded: ok\n", p.Name)
		case err == nil && verbose:
			fmt.Fprintf(&out, "[+]%s ok%s\n", p.Name, p.note())
		case err == nil:
			fmt.Fprintf(&out, "[+]%s ok\n", p.Name)
		case verbose:
			fmt.Fprintf(&out, "[-]%s failed: %s\n", p.Name, oneLine(err))
		default:
			fmt.Fprintf(&out, "[-]%s failed: reason withheld\n", p.Name)
		}
		if err != nil {
			failed = append(failed, p.Name)
			h.log(r, p, err)
		}
		excluded.Delete(p.Name)
	}
	if len(excluded) > 0 {
		var quoted []string
		for _, name := range sets.List(excluded) {
			quoted = append(quoted, fmt.Sprintf("%q", name))
		}
		fmt.Fprintf(&out, "warn: some health checks cannot be excluded: no matches for %s\n", strings.Join(quoted, ", "))
	}

	component := strings.Trim(h.path, "/")
	switch {
	case len(failed) > 0:
		answer(w, http.StatusServiceUnavailable, fmt.Sprintf("%s%s check failed\n", out.String(), component))
	case verbose:
		answer(w, http.StatusOK, fmt.Sprintf("%s%s check passed\n", out.String(), component))
	default:
		answer(w, http.StatusOK, "ok")
	}
}

func (h *handler) serveOne(w http.ResponseWriter, r *http.Request, name string, verbose bool) {
	p := h.find(name)
	if p == nil {
		http.NotFound(w, r)
		return
	}
	switch err := runAll([]*probe{p})[p]; {
	case err == nil:
		answer(w, http.StatusOK, "ok")
	case verbose:
		h.log(r, p, err)
		answer(w, http.StatusServiceUnavailable, fmt.Sprintf("%s failed: %s\n", name, oneLine(err)))
	default:
		h.log(r, p, err)
		answer(w, http.StatusServiceUnavailable, fmt.Sprintf("%s failed: reason withheld\n", name))
	}
}

func (h *handler) log(r *http.Request, p *probe, err error) {
	klog.FromContext(r.Context()).V(2).Info("Health check failed", "path", h.path, "check", p.Name, "err", err)
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// probe runs a check for one request at a time.
type probe struct {
	Check

	mu      sync.Mutex
	pending chan struct{} // closed when the run under way has ended; nil: none is
	err     error         // what that run came to
}

// runAll runs the checks in parallel and gives them checkTimeout together.
func runAll(probes []*probe) map[*probe]error {
	timeout := time.NewTimer(checkTimeout)
	defer timeout.Stop()
	pending := make([]chan struct{}, len(probes))
	for i, p := range probes {
		pending[i] = p.start()
	}
	errs := make(map[*probe]error, len(probes))
	expired := false
	for i, p := range probes {
		if !expired {
			select {
			case <-pending[i]:
			case <-timeout.C:
				expired = true
			}
		}
		select {
		case <-pending[i]:
			p.mu.Lock()
			errs[p] = p.err
			p.mu.Unlock()
		default:
			errs[p] = fmt.Errorf("no answer within %s", checkTimeout)
		}
	}
	return errs
}

// start runs the check, or joins the run of another request that has not ended.
func (p *probe) start() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending != nil {
		return p.pending
	}
	done := make(chan struct{})
	p.pending = done
	go func() {
		err := p.run()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.err, p.pending = err, nil
		close(done)
	}()
	return done
}

// run turns a panic into a failure: net/http recovers one in a handler, but
// nobody would in the goroutine the check runs in.
func (p *probe) run() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return p.Check.Check()
}
