package system_test

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
	"github.com/steadwatch/steadwatch/hack/install"
)

// process is one run of the controller.
type process struct {
	*controlplane.Program
	w       *world
	metrics string // address
}

// alone does without leader election: the test kills, and does not want to wait
// for a lease to run out.
const alone = "--leader-elect=false"

var serial atomic.Int64

// start starts the controller as the manifests' ServiceAccount, through proxy if
// that is not nil, and waits until it has taken every key once.
func (w *world) start(proxy *faultproxy.Proxy, args ...string) *process {
	w.Helper()
	cfg, err := w.plane.ServiceAccountConfig(w.Context(), systemName, "steadwatch")
	if err != nil {
		w.Fatal(err)
	}
	if proxy != nil {
		cfg = proxy.ClientConfig(cfg)
	}
	name := fmt.Sprintf("controller-%d", serial.Add(1))
	kubeconfig := filepath.Join(w.TempDir(), "kubeconfig")
	if err := w.plane.WriteKubeconfig(kubeconfig, cfg); err != nil {
		w.Fatal(err)
	}
	program, err := w.plane.StartProgram(name, installed.binary, append([]string{
		"--kubeconfig=" + kubeconfig,
		"--namespaces=" + w.namespace,
		"--leader-election-namespace=" + w.leases,
		"--health-probe-bind-address=0",
		"--metrics-bind-address=127.0.0.1:0",
		"--debug-bind-address=0",
		"-v=4",
	}, args...)...)
	if err != nil {
		w.Fatal(err)
	}
	p := &process{Program: program, w: w}
	w.Cleanup(func() {
		p.Stop(0)
		if w.Failed() {
			log := p.Log()
			w.Logf("log of %s:\n%s", name, log[max(0, len(log)-8000):])
		}
	})
	w.eventually(patience, "the controller to work", func() (bool, string) {
		select {
		case <-p.Done():
			w.Fatalf("the controller ended with %d:\n%s", p.ExitCode(), p.Log())
		default:
		}
		p.metrics = install.Serving(p.Log()).Metrics
		// The workers start when the caches have been filled.
		return p.metrics != "" && p.metric(`steadwatch_workers`, `state="running"`) > 0, p.Log()
	})
	p.settles()
	return p
}

// restarts stops the controller as Kubernetes does and starts another.
func (p *process) restarts(proxy *faultproxy.Proxy, args ...string) *process {
	p.w.Helper()
	if code := p.Stop(patience); code != 0 {
		p.w.Fatalf("the controller ended with %d:\n%s", code, p.Log())
	}
	return p.w.start(proxy, args...)
}

var client = &http.Client{Timeout: 5 * time.Second}

// metric sums the series of a name that have all the labels, written name="value".
func (p *process) metric(name string, labels ...string) float64 {
	resp, err := client.Get("http://" + p.metrics + "/metrics")
	if err != nil {
		return -1
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return -1
	}
	return sum(string(body), name, labels...)
}

func sum(page, name string, labels ...string) float64 {
	total := 0.0
next:
	for line := range strings.Lines(page) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(rest, label) {
				continue next
			}
		}
		value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
		if err == nil {
			total += value
		}
	}
	return total
}

func (p *process) passes() float64 { return p.metric("steadwatch_reconcile_total") }

// settles waits until no pass has run for a while, and none is due.
func (p *process) settles() {
	p.w.Helper()
	last, since := -1.0, time.Now()
	p.w.eventually(patience, "the controller to have nothing to do", func() (bool, string) {
		now := p.passes()
		busy := p.metric("steadwatch_queue_depth") + p.metric("workqueue_unfinished_work_seconds")
		if now != last || busy > 0 {
			last, since = now, time.Now()
		}
		return now >= 0 && time.Since(since) > 1500*time.Millisecond, fmt.Sprintf("%g passes, %g busy", now, busy)
	})
}
