package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/install"
	platform "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
)

const controllerUser = "system:serviceaccount:" + install.Namespace + ":steadwatch"

// phase is what one run of the controller did.
type phase struct {
	wall   time.Duration
	passes map[string]float64 // by class
	cpu    float64            // seconds
	// How long a key was ready before a worker took it, and how long a pass then
	// took, in seconds.
	queueMean, queueP99, passMean, passP99 float64
	rss, heap                              float64 // at rest, bytes
	requests                               map[request]int
}

// request is a kind of request, without the object's name.
type request struct{ verb, resource string }

// results is all that is printed.
type results struct {
	created     time.Duration // to create the WebApps
	empty       phase         // before there is anything
	first, next phase         // from nothing; after a restart
	// most is the greatest number of a kind of write for one object, and of all of
	// them together, Events apart.
	most      map[request]int
	mostOfAll int
	// managedFields is what these take in JSON, for a WebApp and its two children,
	// and whole is what the three take with them.
	managedFields, whole int
}

// measure needs a control plane of its own.
func measure(ctx context.Context, cp *controlplane.ControlPlane, o options, out io.Writer) (*results, error) {
	say := func(format string, args ...any) { fmt.Fprintf(out, "scale: "+format+"\n", args...) }
	root, err := install.Root()
	if err != nil {
		return nil, err
	}
	if err := install.Manifests(ctx, cp, root); err != nil {
		return nil, err
	}
	say("compiling the controller")
	binary, err := install.Binary(ctx, root, cp.Dir())
	if err != nil {
		return nil, err
	}
	credentials, err := install.Kubeconfig(ctx, cp)
	if err != nil {
		return nil, err
	}
	b := &bench{options: o, cp: cp, kube: kubernetes.NewForConfigOrDie(cp.Config()), platform: versioned.NewForConfigOrDie(cp.Config())}
	var r results

	c, err := startController(ctx, cp, "first", binary, credentials, o.flags())
	if err != nil {
		return nil, err
	}
	if r.empty, err = b.phase(ctx, c, c.began); err != nil {
		return nil, err
	}
	say("creating %d WebApps in %d namespaces", o.n, o.namespaces)
	if err := b.namespaces(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := b.create(ctx); err != nil {
		return nil, err
	}
	r.created = time.Since(began)
	if err := b.observed(ctx, c, say); err != nil {
		return nil, err
	}
	wall := time.Since(began)
	say("all observed after %s", wall.Round(time.Second))
	if err := settle(ctx, c); err != nil {
		return nil, err
	}
	if r.first, err = b.phase(ctx, c, began); err != nil {
		return nil, err
	}
	r.first.wall, r.first.cpu = wall, r.first.cpu-r.empty.cpu
	for class, passes := range r.empty.passes {
		r.first.passes[class] -= passes
	}
	if r.most, r.mostOfAll, err = b.perObject(ctx); err != nil {
		return nil, err
	}
	if r.managedFields, r.whole, err = b.sizes(ctx); err != nil {
		return nil, err
	}

	say("restarting the controller")
	if code := c.Stop(time.Minute); code != 0 {
		return nil, fmt.Errorf("the controller ended with exit code %d:\n%s", code, c.Log())
	}
	if c, err = startController(ctx, cp, "second", binary, credentials, o.flags()); err != nil {
		return nil, err
	}
	if err := c.Until(ctx, "a pass over each", func() (bool, string) {
		page, err := c.scrape(ctx)
		if err != nil {
			return false, err.Error()
		}
		passes := page.value("steadwatch_reconcile_total")
		return passes >= float64(o.n), fmt.Sprintf("%g passes", passes)
	}); err != nil {
		return nil, err
	}
	wall = time.Since(c.began)
	if err := settle(ctx, c); err != nil {
		return nil, err
	}
	if r.next, err = b.phase(ctx, c, c.began); err != nil {
		return nil, err
	}
	r.next.wall = wall
	if code := c.Stop(time.Minute); code != 0 {
		return nil, fmt.Errorf("the controller ended with exit code %d:\n%s", code, c.Log())
	}
	return &r, nil
}

type bench struct {
	options
	cp       *controlplane.ControlPlane
	kube     kubernetes.Interface
	platform versioned.Interface
}

func namespaceName(i int) string { return fmt.Sprintf("scale-%d", i) }

func (b *bench) namespaces(ctx context.Context) error {
	for i := range b.options.namespaces {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceName(i)}}
		if _, err := b.kube.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "config"}, Data: map[string]string{"DATA": strings.Repeat("x", b.configBytes)}}
		if _, err := b.kube.CoreV1().ConfigMaps(ns.Name).Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) create(ctx context.Context) error {
	creating, ctx := errgroup.WithContext(ctx)
	creating.SetLimit(8)
	three := int32(3)
	for i := range b.n {
		creating.Go(func() error {
			app := &platform.WebApp{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d", i)},
				Spec:       platform.WebAppSpec{Image: "registry.example/app:1", Replicas: &three, ConfigRef: "config"},
			}
			_, err := b.platform.PlatformV1alpha1().WebApps(namespaceName(i%b.options.namespaces)).Create(ctx, app, metav1.CreateOptions{})
			return err
		})
	}
	return creating.Wait()
}

// observed waits until every WebApp has a status of its generation.
func (b *bench) observed(ctx context.Context, c *instance, say func(string, ...any)) error {
	said := time.Now()
	return c.Until(ctx, "all WebApps to be observed", func() (bool, string) {
		page, err := c.scrape(ctx)
		if err != nil {
			return false, err.Error()
		}
		done := page.value("steadwatch_reconcile_total", "class", "Done")
		// A list of thousands, again and again, would be part of what is measured:
		// only once the controller has nothing to do.
		if depth := page.value("steadwatch_queue_depth"); depth > 0 || done < float64(b.n) {
			if time.Since(said) > 10*time.Second {
				said = time.Now()
				say("%g passes done, %g keys in the queue", done, depth)
			}
			return false, fmt.Sprintf("%g passes done, %g keys in the queue", done, depth)
		}
		list, err := b.platform.PlatformV1alpha1().WebApps("").List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return false, err.Error()
		}
		observed := 0
		for i := range list.Items {
			if list.Items[i].Status.ObservedGeneration == list.Items[i].Generation {
				observed++
			}
		}
		return observed == b.n, fmt.Sprintf("%d of %d", observed, b.n)
	})
}

// settle waits until no pass has run for 3 seconds.
func settle(ctx context.Context, c *instance) error {
	last, since := -1.0, time.Now()
	return c.Until(ctx, "the controller to have nothing to do", func() (bool, string) {
		page, err := c.scrape(ctx)
		if err != nil {
			return false, err.Error()
		}
		if passes := page.value("steadwatch_reconcile_total"); passes != last {
			last, since = passes, time.Now()
		}
		return time.Since(since) > 3*time.Second, fmt.Sprintf("%g passes", last)
	})
}

func (b *bench) phase(ctx context.Context, c *instance, since time.Time) (phase, error) {
	p, err := c.atRest(ctx)
	if err != nil {
		return phase{}, err
	}
	out := phase{
		passes: map[string]float64{}, requests: map[request]int{},
		cpu: p.value("process_cpu_seconds_total"), rss: p.value("process_resident_memory_bytes"), heap: p.value("go_memstats_heap_alloc_bytes"),
		queueMean: p.mean("workqueue_queue_duration_seconds"), queueP99: p.quantile("workqueue_queue_duration_seconds", 0.99),
		passMean: p.mean("workqueue_work_duration_seconds"), passP99: p.quantile("workqueue_work_duration_seconds", 0.99),
	}
	for _, m := range p.series("steadwatch_reconcile_total") {
		if passes := m.GetCounter().GetValue(); passes > 0 {
			out.passes[labelOf(m, "class")] = passes
		}
	}
	events, err := b.requestsSince(ctx, since)
	for _, e := range events {
		out.requests[kindOf(e)]++
	}
	return out, err
}

// requestsSince are the controller's, watches and the Lease's apart.
func (b *bench) requestsSince(ctx context.Context, since time.Time) ([]controlplane.AuditEvent, error) {
	return b.cp.Audit(ctx, func(e controlplane.AuditEvent) bool {
		return e.User == controllerUser && e.Stage == controlplane.StageResponseComplete && !e.RequestReceived.Before(since) &&
			e.Verb != "watch" && e.Resource != "leases"
	})
}

func kindOf(e controlplane.AuditEvent) request {
	if e.Subresource != "" {
		return request{e.Verb, e.Resource + "/" + e.Subresource}
	}
	return request{e.Verb, e.Resource}
}

func (r request) writes() bool {
	return r.verb != "get" && r.verb != "list" && r.resource != "events"
}

// perObject counts writes for each WebApp: children have its name.
func (b *bench) perObject(ctx context.Context) (map[request]int, int, error) {
	events, err := b.requestsSince(ctx, time.Time{})
	if err != nil {
		return nil, 0, err
	}
	type object struct{ namespace, name string }
	counts := map[object]map[request]int{}
	for _, e := range events {
		if r := kindOf(e); r.writes() {
			key := object{e.Namespace, e.Name}
			if counts[key] == nil {
				counts[key] = map[request]int{}
			}
			counts[key][r]++
		}
	}
	most, mostOfAll := map[request]int{}, 0
	for _, writes := range counts {
		all := 0
		for r, n := range writes {
			all += n
			most[r] = max(most[r], n)
		}
		mostOfAll = max(mostOfAll, all)
	}
	return most, mostOfAll, nil
}

// sizes looks at one WebApp and its children.
func (b *bench) sizes(ctx context.Context) (managedFields, whole int, err error) {
	add := func(object metav1.Object, err error) error {
		if err != nil {
			return err
		}
		with, err := json.Marshal(object)
		if err != nil {
			return err
		}
		object.SetManagedFields(nil)
		without, err := json.Marshal(object)
		managedFields, whole = managedFields+len(with)-len(without), whole+len(with)
		return err
	}
	ns, name, options := namespaceName(0), "web-0", metav1.GetOptions{}
	app, err := b.platform.PlatformV1alpha1().WebApps(ns).Get(ctx, name, options)
	if err := add(app, err); err != nil {
		return 0, 0, err
	}
	deployment, err := b.kube.AppsV1().Deployments(ns).Get(ctx, name, options)
	if err := add(deployment, err); err != nil {
		return 0, 0, err
	}
	service, err := b.kube.CoreV1().Services(ns).Get(ctx, name, options)
	return managedFields, whole, add(service, err)
}

// check holds the results to what is promised.
func (r *results) check() error {
	for kind, n := range r.most {
		if n > 1 {
			return fmt.Errorf("an object took %d times %s %s", n, kind.verb, kind.resource)
		}
	}
	if r.mostOfAll > 4 {
		return fmt.Errorf("an object took %d writes, more than 4", r.mostOfAll)
	}
	for kind, n := range r.next.requests {
		if kind.writes() || kind.resource == "events" {
			return fmt.Errorf("after a restart with nothing changed: %d times %s %s", n, kind.verb, kind.resource)
		}
	}
	return nil
}

// kinds are all kinds of requests of both phases.
func (r *results) kinds() map[request]bool {
	all := map[request]bool{}
	for kind := range maps.Keys(r.first.requests) {
		all[kind] = true
	}
	for kind := range maps.Keys(r.next.requests) {
		all[kind] = true
	}
	return all
}
