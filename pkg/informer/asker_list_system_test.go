package informer

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/hack/faultproxy"
	platformv1alpha1 "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
)

// Lists of 3,000 objects in pages, of a built-in and of a custom resource, and what
// questions and audits cost on the wire.
func systemList(t *testing.T, a *asking) {
	custom, err := versioned.NewForConfig(a.cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	const objects = 3000
	namespace := a.cp.Namespace(t)
	inParallel(objects, func(n int) {
		name := fmt.Sprintf("application-%d", n)
		if _, err := a.kube.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"data": strings.Repeat("x", 1000)}}, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
		app := &platformv1alpha1.WebApp{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: platformv1alpha1.WebAppSpec{Image: "image"}}
		if _, err := custom.PlatformV1alpha1().WebApps(namespace).Create(t.Context(), app, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	for _, resource := range []schema.GroupVersionResource{systemConfigMaps, systemWebApps} {
		asker := a.asker(t, a.throughProxy(), resource, namespace)
		client, err := metadata.NewForConfig(a.cp.Config())
		if err != nil {
			t.Fatal(err)
		}
		want, err := client.Resource(resource).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		asker.ask(t.Context(), "1") // opens the connection

		before, match := a.proxy.Stats(), faultproxy.Match{Verbs: []string{"list"}, Resource: resource.Resource}
		listedBefore := a.proxy.Count(match)
		began := time.Now()
		all, err := asker.list(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		took, after := time.Since(began), a.proxy.Stats()
		pages := a.proxy.Requests(match)[listedBefore:]
		if len(all.objects) < objects || len(all.objects) != len(want.Items) || below(all.resourceVersion, want.ResourceVersion) {
			t.Errorf("%s: %d objects at %s, want %d at %s", resource.Resource, len(all.objects), all.resourceVersion, len(want.Items), want.ResourceVersion)
		}
		for n := range want.Items {
			o := &want.Items[n]
			if got := all.objects[cache.MetaObjectToName(o)]; got != markOf(o) {
				t.Fatalf("%s: %+v, want %+v", o.Name, got, markOf(o))
			}
		}
		if want := (len(all.objects) + pageSize - 1) / pageSize; len(pages) != want {
			t.Errorf("%s: %d requests, want %d", resource.Resource, len(pages), want)
		}
		for _, page := range pages {
			if !page.MetadataOnly || page.Connection != pages[0].Connection {
				t.Errorf("page: %+v", page)
			}
		}
		t.Logf("audit of %d %s: %d requests, %d bytes received and %d sent uncompressed, %s",
			len(all.objects), resource.GroupResource(), len(pages), after.Sent-before.Sent, after.Received-before.Received, took)
		a.measure(t, resource, namespace)

		// A continue token that has expired in the middle starts the list over, once.
		expire := faultproxy.Rule{
			Match:  faultproxy.Match{Verbs: []string{"list"}, Resource: resource.Resource, Func: func(r faultproxy.Request) bool { return strings.Contains(r.URL, "continue=") }},
			Answer: &faultproxy.Answer{Code: 410, Status: &metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired}},
			Times:  1,
		}
		a.proxy.Add(expire)
		if again, err := asker.list(t.Context()); err != nil || len(again.objects) != len(all.objects) {
			t.Errorf("an expired continue token: %v", err)
		}
		expire.Times = 2
		a.proxy.Add(expire)
		if _, err := asker.list(t.Context()); classify(err) != Expired {
			t.Errorf("two expired continue tokens: %v", err)
		}
		// A dead connection is replaced in the middle of a list.
		poisoned := connectionOf(a.proxy, "list")
		fault := a.proxy.Add(faultproxy.Rule{
			Match: faultproxy.Match{Verbs: []string{"list"}, Func: func(r faultproxy.Request) bool { return r.Connection == poisoned }},
			Close: faultproxy.ResetConnection,
		})
		if _, err := asker.list(t.Context()); err != nil || fault.Hits() == 0 {
			t.Errorf("a reset connection: %v, %d hits", err, fault.Hits())
		}
		fault.Remove()
	}
}

func inParallel(n int, f func(n int)) {
	var group sync.WaitGroup
	next := make(chan int)
	for range 16 {
		group.Go(func() {
			for n := range next {
				f(n)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
}

// measure prints what a question and an audit cost without the proxy, which takes
// compression away.
func (a *asking) measure(t *testing.T, resource schema.GroupVersionResource, namespace string) {
	t.Helper()
	var received, sent atomic.Int64
	config := a.cp.Config()
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &countedConn{c, &received, &sent}, err
	}
	asker := a.asker(t, config, resource, namespace)
	count := func(what string, f func() error) {
		t.Helper()
		received.Store(0)
		sent.Store(0)
		began := time.Now()
		if err := f(); err != nil {
			t.Error(err)
		}
		t.Logf("%s %s: %d bytes received, %d sent, %s", resource.GroupResource(), what, received.Load(), sent.Load(), time.Since(began))
	}
	var all *listing
	list := func() (err error) {
		all, err = asker.list(t.Context())
		return err
	}
	ask := func() error {
		got := asker.ask(t.Context(), all.resourceVersion)
		if got.kind != quiet {
			return fmt.Errorf("a quiet resource: %+v", got)
		}
		return nil
	}
	count("audit, new connection", list)
	count(fmt.Sprintf("audit of %d objects", len(all.objects)), list)
	if resource == systemConfigMaps { // others cost the same
		count("question, nothing new", ask)
		count("another question, nothing new", ask)
	}
}

type countedConn struct {
	net.Conn
	received, sent *atomic.Int64
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.sent.Add(int64(n))
	return n, err
}
