package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/gateway"
	"github.com/steadwatch/steadwatch/hack/install"
	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
)

const (
	namespace = "heapdump"
	// appliedBytes is the data of a Secret that kubectl applies: all annotations
	// together have 256 KiB, and base64 takes a third more.
	appliedBytes = 128 << 10
	// growth is how much larger the heap may be with the Secrets than without. Their
	// names and versions take some, and so does what a pass leaves behind.
	growth = 4 << 20
)

// image is a look at the controller's memory.
type image struct {
	memory
	size uint64
	// data, applied and control are how often the patterns were found.
	data, applied, control int
}

// result of a measurement.
type result struct {
	// without Secrets, with them, and in a process that was started with them there.
	without, with, restarted image
	// atOnce is after kubectl has applied a Secret, later after a collection and as
	// many changes as there are Secrets.
	atOnce, later image
}

// measurement is what its steps share.
type measurement struct {
	options
	out        io.Writer
	began      time.Time
	kube       kubernetes.Interface
	routes     versioned.Interface
	controller *instance
	// data is in all Secrets but the one that kubectl applies, applied in that one, and
	// control in the hostnames, where the search has to find it.
	data, applied, control pattern
}

func measure(ctx context.Context, cp *controlplane.ControlPlane, o options, out io.Writer) (*result, error) {
	m := &measurement{options: o, out: out, began: time.Now(),
		data: newPattern("data"), applied: newPattern("applied"), control: newPattern("control")}
	cfg := cp.Config()
	cfg.WarningHandler = rest.NoWarnings{} // of certificates that are none
	var err error
	if m.kube, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, err
	}
	if m.routes, err = versioned.NewForConfig(cfg); err != nil {
		return nil, err
	}
	root, err := install.Root()
	if err != nil {
		return nil, err
	}
	for _, step := range []func() error{
		func() error { return install.Manifests(ctx, cp, root) },
		func() error { return install.TLSSecrets(ctx, cp, root) },
		func() error { return gateway.Install(ctx, cp) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	binary, err := install.Binary(ctx, root, cp.Dir())
	if err != nil {
		return nil, err
	}
	kubeconfig, err := install.Kubeconfig(ctx, cp)
	if err != nil {
		return nil, err
	}
	start := func(name string) error {
		if m.controller != nil {
			m.controller.Stop(30 * time.Second)
		}
		m.controller, err = startController(ctx, cp, name, binary, kubeconfig)
		return err
	}

	r := &result{}
	for _, step := range []struct {
		what string
		do   func() error
		look *image
	}{
		{"without Secrets", func() error {
			return errors.Join(start("controller"), m.createRoutes(ctx), m.settled(ctx, metav1.ConditionFalse))
		}, &r.without},
		{"with Secrets", func() error { return errors.Join(m.createSecrets(ctx), m.settled(ctx, metav1.ConditionTrue)) }, &r.with},
		{"after a restart", func() error {
			// A change by which to see that the new process is at work.
			return errors.Join(start("controller-again"), m.touchRoutes(ctx), m.settled(ctx, metav1.ConditionTrue))
		}, &r.restarted},
		{"with a Secret that kubectl has applied", func() error { return m.apply(ctx) }, &r.atOnce},
		{"later", func() error { return errors.Join(m.touchSecrets(ctx), m.settled(ctx, metav1.ConditionTrue)) }, &r.later},
	} {
		if err := step.do(); err != nil {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
		if err := m.look(ctx, step.look); err != nil {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
		fmt.Fprintf(out, "%5.1fs  %s: %+v\n", time.Since(m.began).Seconds(), step.what, *step.look)
	}
	if code := m.controller.Stop(30 * time.Second); code != 0 {
		return nil, fmt.Errorf("the controller ended with exit code %d:\n%s", code, m.controller.Log())
	}
	return r, nil
}

// look searches before anything is collected, and then measures.
func (m *measurement) look(ctx context.Context, at *image) error {
	found, size, err := search(m.controller.PID(), m.data, m.applied, m.control)
	if err != nil {
		return err
	}
	at.size, at.data, at.applied, at.control = size, found[0], found[1], found[2]
	at.memory, err = m.controller.collected(ctx)
	return err
}

func (m *measurement) name(n int) string { return fmt.Sprintf("web-%03d", n) }

func (m *measurement) createRoutes(ctx context.Context) error {
	_, err := m.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = m.kube.CoreV1().Services(namespace).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for n := range m.secrets {
		_, err := m.routes.NetworkingV1alpha1().ApplicationRoutes(namespace).Create(ctx, &v1alpha1.ApplicationRoute{
			ObjectMeta: metav1.ObjectMeta{Name: m.name(n)},
			Spec: v1alpha1.ApplicationRouteSpec{
				Hostnames: []string{fmt.Sprintf("%s.%d.example.com", m.control[0], n)},
				Backends:  []v1alpha1.Backend{{Service: "web", Port: 80}},
				TLSSecret: m.name(n),
				Gateway:   &v1alpha1.GatewayReference{Name: "public"},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}

// settled waits until every route of the latest generation has DependenciesReady like
// that.
func (m *measurement) settled(ctx context.Context, status metav1.ConditionStatus) error {
	return m.controller.Until(ctx, fmt.Sprintf("DependenciesReady=%s on %d routes", status, m.secrets), func() (bool, string) {
		routes, err := m.routes.NetworkingV1alpha1().ApplicationRoutes(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err.Error()
		}
		count, last := 0, ""
		for _, route := range routes.Items {
			c := meta.FindStatusCondition(route.Status.Conditions, v1alpha1.ConditionDependenciesReady)
			if c != nil && c.Status == status && c.ObservedGeneration == route.Generation {
				count++
			} else {
				last = fmt.Sprintf("%s has %+v", route.Name, c)
			}
		}
		return count == m.secrets, fmt.Sprintf("%d of %d; %s", count, len(routes.Items), last)
	})
}

// secret has n bytes of data.
func secret(name string, p pattern, n int) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: p.fill(n - 2048), corev1.TLSPrivateKeyKey: p.fill(2048)},
	}
}

func (m *measurement) createSecrets(ctx context.Context) error {
	for n := range m.secrets {
		if _, err := m.kube.CoreV1().Secrets(namespace).Create(ctx, secret(m.name(n), m.data, m.bytes), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// apply puts a Secret in place of the first one, as kubectl apply does.
func (m *measurement) apply(ctx context.Context) error {
	s := secret(m.name(0), m.applied, min(m.bytes, appliedBytes))
	applied, err := json.Marshal(s)
	if err != nil {
		return err
	}
	s.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: string(applied)}
	made, err := m.kube.CoreV1().Secrets(namespace).Update(ctx, s, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	return m.controller.Until(ctx, "the controller to hear of it", func() (bool, string) {
		seen := ""
		err := get(ctx, "http://"+m.controller.debug+"/debug/informers", func(line string) error { seen += line; return nil })
		if err != nil {
			return false, err.Error()
		}
		order, err := resourceversion.CompareResourceVersion(secretsAt(seen), made.ResourceVersion)
		return err == nil && order >= 0, seen
	})
}

// secretsAt returns how far the copy of Secrets has got, of a page of /debug/informers.
func secretsAt(page string) string {
	var informers []struct {
		Resource        string `json:"resource"`
		ResourceVersion string `json:"resourceVersion"`
	}
	if json.Unmarshal([]byte(page), &informers) != nil {
		return ""
	}
	for _, i := range informers {
		if i.Resource == "secrets" {
			return i.ResourceVersion
		}
	}
	return ""
}

// touchRoutes changes the spec of every route.
func (m *measurement) touchRoutes(ctx context.Context) error {
	client := m.routes.NetworkingV1alpha1().ApplicationRoutes(namespace)
	for n := range m.secrets {
		if _, err := client.Patch(ctx, m.name(n), "application/merge-patch+json", []byte(`{"spec":{"timeout":"2s"}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// touchSecrets renews every Secret but the applied one.
func (m *measurement) touchSecrets(ctx context.Context) error {
	client := m.kube.CoreV1().Secrets(namespace)
	for n := 1; n < m.secrets; n++ {
		if _, err := client.Patch(ctx, m.name(n), "application/merge-patch+json", []byte(`{"metadata":{"labels":{"renewed":"yes"}}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (r *result) check() error {
	var errs []error
	for _, l := range []struct {
		when string
		image
	}{{"without Secrets", r.without}, {"with Secrets", r.with}, {"after a restart", r.restarted}, {"with an applied one", r.atOnce}, {"later", r.later}} {
		if l.data > 0 {
			errs = append(errs, fmt.Errorf("%s: data of Secrets is in the controller's memory %d times", l.when, l.data))
		}
		if l.control == 0 {
			errs = append(errs, fmt.Errorf("%s: not even the hostnames are found in the controller's memory: the search shows nothing", l.when))
		}
		if l.heap > r.without.heap+growth {
			errs = append(errs, fmt.Errorf("%s: the heap has grown from %.1f to %.1f MiB", l.when, r.without.heap/(1<<20), l.heap/(1<<20)))
		}
	}
	return errors.Join(errs...)
}

func (r *result) print(w io.Writer, o options) {
	fmt.Fprintf(w, "%d Secrets of %d bytes, each named by one ApplicationRoute.\n\n", o.secrets, o.bytes)
	fmt.Fprintf(w, "|  | no Secret yet | Secrets there | after a restart | one applied by kubectl, at once | after as many changes |\n| --- | --- | --- | --- | --- | --- |\n")
	row := func(what string, f func(image) string) {
		fmt.Fprintf(w, "| %s |", what)
		for _, i := range []image{r.without, r.with, r.restarted, r.atOnce, r.later} {
			fmt.Fprintf(w, " %s |", f(i))
		}
		fmt.Fprintln(w)
	}
	mib := func(bytes float64) string { return fmt.Sprintf("%.1f MiB", bytes/(1<<20)) }
	row("heap, collected", func(i image) string { return mib(i.heap) })
	row("RSS", func(i image) string { return mib(i.rss) })
	row("memory searched", func(i image) string { return mib(float64(i.size)) })
	row("data of Secrets found", func(i image) string { return fmt.Sprint(i.data) })
	row("found of the annotation", func(i image) string { return fmt.Sprint(i.applied) })
	row("hostnames found (the control)", func(i image) string { return fmt.Sprint(i.control) })
}
