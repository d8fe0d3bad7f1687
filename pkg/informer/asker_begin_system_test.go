package informer

import (
	"sync"
	"testing"
	"time"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
)

// Whether WatchLists begin, asked of a real API server.
func TestSystemBegins(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Config{})
	if err := cp.ApplyFile(t.Context(), "../../manifests/crd/platform.tejo.dev_webapps.yaml"); err != nil {
		t.Fatal(err)
	}
	watches := faultproxy.Match{Verbs: []string{"watch"}}
	for name, test := range map[string]struct {
		fault  *faultproxy.Rule
		want   answerKind
		within time.Duration
	}{
		"healthy":             {nil, quiet, 5 * time.Second},
		"watches frozen":      {&faultproxy.Rule{Match: watches, Freeze: faultproxy.FreezeStream}, mute, 5 * time.Second},
		"watches end at once": {&faultproxy.Rule{Match: watches, Close: faultproxy.EOF}, refused, 5 * time.Second},
		"throttled":           {&faultproxy.Rule{Match: watches, Answer: &faultproxy.Answer{Code: 429, RetryAfter: time.Second}}, refused, 5 * time.Second},
		"3 s of latency":      {&faultproxy.Rule{Delay: 3 * time.Second}, quiet, 10 * time.Second},
		"all is frozen":       {&faultproxy.Rule{Freeze: faultproxy.FreezeStream}, unreachable, goneAfter + 5*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAsking(t, cp)
			if test.fault != nil {
				defer a.proxy.Add(*test.fault).Remove()
			}
			namespace := cp.Namespace(t)
			var asking sync.WaitGroup
			for what, asker := range map[string]*asker{
				"a namespace":    a.asker(t, a.throughProxy(), systemConfigMaps, namespace),
				"all namespaces": a.asker(t, a.throughProxy(), systemConfigMaps, ""),
				"custom objects": a.asker(t, a.throughProxy(), systemWebApps, namespace),
			} {
				asking.Go(func() {
					began := time.Now()
					if got := asker.begins(t.Context()); got.kind != test.want {
						t.Errorf("%s: %s: %v, want %s", what, got.kind, got.err, test.want)
					}
					if took := time.Since(began); took > test.within {
						t.Errorf("%s: took %s, want at most %s", what, took, test.within)
					}
				})
			}
			asking.Wait()
		})
	}
}
