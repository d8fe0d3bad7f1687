package informer

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
	platformv1alpha1 "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

var (
	systemConfigMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	systemWebApps    = platformv1alpha1.SchemeGroupVersion.WithResource("webapps")
)

// asking is a control plane and a proxy in front of it, through which is asked.
type asking struct {
	cp    *controlplane.ControlPlane
	proxy *faultproxy.Proxy
	kube  *kubernetes.Clientset // past the proxy
}

func newAsking(t *testing.T, cp *controlplane.ControlPlane) *asking {
	t.Helper()
	kube, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	a := &asking{cp: cp, kube: kube}
	a.reach(t, cp.Config())
	return a
}

// reach puts a proxy in front of an API server.
func (a *asking) reach(t *testing.T, server *rest.Config) {
	t.Helper()
	proxy, err := faultproxy.Start(faultproxy.Config{Upstream: server})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	a.proxy = proxy
}

func (a *asking) asker(t *testing.T, config *rest.Config, resource schema.GroupVersionResource, namespace string) *asker {
	t.Helper()
	h, err := NewHearing(HearingConfig{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.current().close() })
	return h.newAsker(resource, namespace)
}

func (a *asking) throughProxy() *rest.Config { return a.proxy.ClientConfig(a.cp.Config()) }

func (a *asking) write(t *testing.T, namespace, name string) *corev1.ConfigMap {
	t.Helper()
	cm, err := a.kube.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

func (a *asking) revision(t *testing.T) string {
	t.Helper()
	list, err := a.kube.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	return list.ResourceVersion
}

// Every way in which a question can be answered, and lists in pages, against a real
// API server.
func TestSystemAsker(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Config{})
	run := func(name string, f func(t *testing.T, a *asking)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, newAsking(t, cp))
		})
	}
	if err := cp.ApplyFile(t.Context(), "../../manifests/crd/platform.tejo.dev_webapps.yaml"); err != nil {
		t.Fatal(err)
	}
	run("list", systemList)
	run("unconverged", systemUnconverged)
	watches := faultproxy.Match{Verbs: []string{"watch"}, Resource: "configmaps"}

	run("quiet and news", func(t *testing.T, a *asking) {
		namespace := cp.Namespace(t)
		asker := a.asker(t, a.throughProxy(), systemConfigMaps, namespace)
		from := a.revision(t)
		if got := asker.ask(t.Context(), from); got.kind != quiet || got.rewound {
			t.Errorf("a quiet resource: %+v", got)
		}
		cm := a.write(t, namespace, "news")
		a.write(t, namespace, "more-news")
		began := time.Now()
		got := asker.ask(t.Context(), from)
		if got.kind != news || got.key != cache.MetaObjectToName(cm) || got.resourceVersion != cm.ResourceVersion {
			t.Errorf("want %s at %s: %+v", cm.Name, cm.ResourceVersion, got)
		}
		t.Logf("news after %s", time.Since(began))
	})

	// What happens elsewhere moves the start of the next question on.
	run("busy elsewhere", func(t *testing.T, a *asking) {
		namespace := cp.Namespace(t)
		elsewhere := a.cp.Namespace(t)
		asker := a.asker(t, a.throughProxy(), systemConfigMaps, namespace)
		from := a.revision(t)
		ctx, stop := context.WithCancel(t.Context())
		var writer sync.WaitGroup
		writer.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				_, _ = a.kube.CoreV1().ConfigMaps(elsewhere).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("busy-", n)}}, metav1.CreateOptions{})
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
		first := asker.ask(t.Context(), from)
		second := asker.ask(t.Context(), from)
		stop()
		writer.Wait()
		if first.kind != quiet || second.kind != quiet || !below(from, first.resourceVersion) || !below(first.resourceVersion, second.resourceVersion) {
			t.Fatalf("from %s: %+v, then %+v", from, first, second)
		}
		asked := a.proxy.Requests(watches)
		if url := asked[len(asked)-1].URL; !strings.Contains(url, "resourceVersion="+first.resourceVersion) {
			t.Errorf("the second question did not start at the first one's bookmark %s: %s", first.resourceVersion, url)
		}
	})

	run("expired", func(t *testing.T, a *asking) {
		asker := a.asker(t, a.throughProxy(), systemConfigMaps, "default")
		from := a.revision(t)
		for _, rule := range []faultproxy.Rule{
			{Match: watches, Answer: &faultproxy.Answer{Code: 410}},
			{Match: watches, InjectError: &metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired}},
		} {
			fault := a.proxy.Add(rule)
			if got := asker.ask(t.Context(), from); got.kind != expired || got.err == nil {
				t.Errorf("%+v: %+v", rule, got)
			}
			if hits := fault.Hits(); hits != 1 {
				t.Errorf("an answer was asked for %d times", hits)
			}
			fault.Remove()
		}
	})

	run("refused", func(t *testing.T, a *asking) {
		config, err := a.cp.ConfigFor("nobody")
		if err != nil {
			t.Fatal(err)
		}
		if got := a.asker(t, a.proxy.ClientConfig(config), systemConfigMaps, "default").ask(t.Context(), "1000"); got.kind != refused || classify(got.err) != Forbidden {
			t.Errorf("forbidden: %+v", got)
		}
		if got := a.asker(t, a.throughProxy(), widgets, "default").ask(t.Context(), "1000"); got.kind != refused || classify(got.err) != NotFound {
			t.Errorf("no such resource: %+v", got)
		}
		fault := a.proxy.Add(faultproxy.Rule{Match: watches, Answer: &faultproxy.Answer{Code: 429, RetryAfter: time.Minute}})
		defer fault.Remove()
		began := time.Now()
		if got := a.asker(t, a.throughProxy(), systemConfigMaps, "default").ask(t.Context(), "1000"); got.kind != refused || classify(got.err) != Throttled || time.Since(began) > 20*time.Second {
			t.Errorf("throttled, after %s: %+v", time.Since(began), got)
		}
	})

	// The connection is dead for watches, new ones are fine: the fresh one gets the
	// answer, and becomes the process's.
	run("poisoned connection", func(t *testing.T, a *asking) {
		namespace := cp.Namespace(t)
		asker := a.asker(t, a.throughProxy(), systemConfigMaps, namespace)
		if _, err := asker.list(t.Context()); err != nil {
			t.Fatal(err)
		}
		poisoned := connectionOf(a.proxy, "list")
		cm := a.write(t, namespace, "past-the-poison")
		fault := a.proxy.Add(faultproxy.Rule{Match: faultproxy.Match{
			Verbs: []string{"watch"}, Func: func(r faultproxy.Request) bool { return r.Connection == poisoned },
		}, Freeze: faultproxy.FreezeStream})
		defer fault.Remove()
		from := previous(cm.ResourceVersion)
		if got := asker.ask(t.Context(), from); got.kind != news || got.key != cache.MetaObjectToName(cm) {
			t.Errorf("%+v", got)
		}
		began := time.Now()
		if got := asker.ask(t.Context(), from); got.kind != news || time.Since(began) > 20*time.Second || fault.Hits() != 1 {
			t.Errorf("the next question, after %s and %d frozen: %+v", time.Since(began), fault.Hits(), got)
		}
	})

	// New watches are frozen on every connection, while all else is answered.
	run("mute", func(t *testing.T, a *asking) {
		namespace := cp.Namespace(t)
		asker := a.asker(t, a.throughProxy(), systemConfigMaps, namespace)
		fault := a.proxy.Add(faultproxy.Rule{Match: watches, Freeze: faultproxy.FreezeStream})
		defer fault.Remove()
		before := len(a.proxy.Requests(watches))
		got := asker.ask(t.Context(), a.revision(t))
		if got.kind != mute || got.err == nil {
			t.Errorf("%+v", got)
		}
		asked := a.proxy.Requests(watches)[before:]
		if len(asked) != 2 || asked[0].Connection == asked[1].Connection {
			t.Errorf("want two questions on two connections: %+v", asked)
		}
		if _, err := asker.list(t.Context()); err != nil {
			t.Errorf("list: %v", err)
		}
	})

	// A watch that ends at once says nothing, whatever the client makes of it.
	run("ends before its time", func(t *testing.T, a *asking) {
		namespace := cp.Namespace(t)
		fault := a.proxy.Add(faultproxy.Rule{Match: watches, Close: faultproxy.EOF})
		defer fault.Remove()
		if got := a.asker(t, a.throughProxy(), systemConfigMaps, namespace).ask(t.Context(), a.revision(t)); got.kind != mute {
			t.Errorf("%+v", got)
		}
	})

	run("unreachable", func(t *testing.T, a *asking) {
		server, err := cp.AddAPIServer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a.reach(t, server.Config())
		asker := a.asker(t, a.throughProxy(), systemConfigMaps, "default")
		from := a.revision(t)
		if got := asker.ask(t.Context(), from); got.kind == unreachable {
			t.Fatalf("%+v", got)
		}
		for name, fault := range map[string]struct{ down, up func() error }{
			"paused": {func() error { return server.Pause(t.Context()) }, server.Resume},
			"refuses connections": {func() error {
				a.proxy.Refuse()
				return nil
			}, a.proxy.Up},
		} {
			if err := fault.down(); err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			got := asker.ask(t.Context(), from)
			if err := fault.up(); err != nil {
				t.Fatal(err)
			}
			if got.kind != unreachable || got.err == nil {
				t.Errorf("%s: %+v", name, got)
			}
			t.Logf("%s: found after %s: %v", name, time.Since(began), got.err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if got := asker.ask(ctx, from); got.kind != unreachable {
			t.Errorf("not awaited: %+v", got)
		}
		if got := asker.ask(t.Context(), from); got.kind != quiet && got.kind != news {
			t.Errorf("up again: %+v", got)
		}
	})
}

func connectionOf(p *faultproxy.Proxy, verb string) int64 {
	all := p.Requests(faultproxy.Match{Verbs: []string{verb}})
	return all[len(all)-1].Connection
}

func previous(resourceVersion string) string {
	var n int
	_, _ = fmt.Sscan(resourceVersion, &n)
	return fmt.Sprint(n - 1)
}
