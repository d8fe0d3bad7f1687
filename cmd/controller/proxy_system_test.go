package main_test

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
)

// proxy starts a fault proxy in front of the world's API server.
func (w *world) proxy() *faultproxy.Proxy {
	w.Helper()
	p, err := faultproxy.Start(faultproxy.Config{Upstream: w.plane.Config()})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(p.Close)
	return p
}

// heldWrite is the patch of one Deployment, kept in the proxy until release.
type heldWrite struct {
	w       *world
	fault   *faultproxy.Fault
	release func()
	// forwarded counts requests whose sender still waited when they were released.
	forwarded atomic.Int64
	gone      atomic.Int64 // requests whose sender gave up
}

// hold keeps back every patch of a Deployment. A request that its sender cancels
// never reaches the API server.
func (w *world) hold(p *faultproxy.Proxy, name string) *heldWrite {
	w.Helper()
	h := &heldWrite{w: w}
	released := make(chan struct{})
	h.release = sync.OnceFunc(func() { close(released) })
	h.fault = p.Add(faultproxy.Rule{
		Match: faultproxy.Match{Verbs: []string{"patch"}, Resource: "deployments", Namespace: w.namespace, Name: name},
		Hold: func(ctx context.Context, _ faultproxy.Request) {
			select {
			case <-ctx.Done():
			case <-released:
			}
			if ctx.Err() != nil {
				h.gone.Add(1)
			} else {
				h.forwarded.Add(1)
			}
		},
	})
	w.Cleanup(h.release)
	return h
}

// await waits until a write is held.
func (h *heldWrite) await() {
	h.w.Helper()
	ctx, cancel := context.WithTimeout(h.w.Context(), patience)
	defer cancel()
	if err := h.fault.WaitHits(ctx, 1); err != nil {
		h.w.Fatalf("no patch of the Deployment has come: %v", err)
	}
}

func patchesDeployment(name string) func(controlplane.AuditEvent) bool {
	return func(e controlplane.AuditEvent) bool {
		return e.Verb == "patch" && e.Resource == "deployments" && e.Name == name
	}
}

// contains fails the test unless the replica has logged the text.
func (w *world) contains(r *replica, text string) {
	w.Helper()
	if !strings.Contains(r.Log(), text) {
		w.Errorf("%s has not logged %q:\n%s", r.name, text, end(r.Log(), 3000))
	}
}

// lines counts the lines of the replica's log that contain all the words.
func (r *replica) lines(words ...string) int {
	n := 0
next:
	for line := range strings.Lines(r.Log()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		n++
	}
	return n
}

// kubeconfigTo writes a kubeconfig without credentials.
func kubeconfigTo(t *testing.T, server string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
