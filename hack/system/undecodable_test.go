package system_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

// An undecodable WebApp that is written 20 times a second costs its kind nothing: no
// relist, no watch that is opened anew, one report of it, and good ones are served as
// quickly as before. It can be deleted under that fire.
func TestUndecodableWrittenOften(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	// Quiet, fire and the same fire on a good one take turns, so that what else the
	// machine does hits all three, and what the API server does for a write both fires.
	const slice = 2 * time.Second
	turns, good := 2, 25
	if long { // of fewer changes the p99 is what happened to a handful
		turns, good = 100, 50
	}
	p := w.start(nil, alone)
	w.create(newApp("bad"))
	w.create(newApp("beaten"))
	for i := range good {
		w.create(newApp(fmt.Sprintf("web-%d", i)))
	}
	w.allReady(good + 2)
	admin := w.plane.Config()
	admin.WarningHandler = rest.NoWarnings{} // each write is warned of the value that it leaves
	bad := dynamic.NewForConfigOrDie(admin).Resource(v1alpha1.SchemeGroupVersion.WithResource("webapps")).Namespace(w.namespace)
	turned := time.Now()
	w.corrupt("bad", `"drainTimeout":"0s"`, `"drainTimeout":"1"`)
	w.eventually(patience, "the condition", func() (bool, string) {
		o, err := bad.Get(t.Context(), "bad", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(c any) bool {
			c2 := c.(map[string]any)
			return c2["type"] == "Decodable" && c2["status"] == "False"
		}), fmt.Sprint(conditions)
	})
	p.settles()
	reactions := w.reactions()
	spent := func() float64 { return p.metric("process_cpu_seconds_total") }
	const resource = `resource="webapps.platform.tejo.dev"`
	type asked struct{ lists, watches float64 }
	seen := func() asked {
		return asked{p.metric("steadwatch_lists_total", resource), p.metric("steadwatch_watches_total", resource)}
	}
	before, logged, since := seen(), len(p.Log()), time.Now()
	stop := make(chan struct{})
	var writes [3]atomic.Int64
	var phase atomic.Int64
	targets := [3]string{"", "bad", "beaten"}
	var writing sync.WaitGroup
	const writers, rate = 5, 20
	beats := make(chan struct{})
	writing.Go(func() {
		defer close(beats)
		for {
			// Uneven, so that they neither come in bursts nor keep step with the changes.
			next := time.NewTimer(time.Duration((0.5 + rand.Float64()) * float64(time.Second) / rate))
			select {
			case <-stop:
				return
			case <-t.Context().Done():
				return
			case <-next.C:
			}
			select {
			case beats <- struct{}{}:
			default: // all are under way
			}
		}
	})
	// Each on a connection of its own, so that a slow answer does not slow the others.
	for range writers {
		cfg := rest.CopyConfig(admin)
		cfg.QPS, cfg.Dial = -1, (&net.Dialer{}).DialContext
		client := dynamic.NewForConfigOrDie(cfg).Resource(v1alpha1.SchemeGroupVersion.WithResource("webapps")).Namespace(w.namespace)
		writing.Go(func() {
			for range beats {
				n := phase.Load()
				if targets[n] == "" {
					continue
				}
				_, err := client.Patch(t.Context(), targets[n], types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/beat":"%d"}}}`, writes[n].Load()), metav1.PatchOptions{})
				if apierrors.IsNotFound(err) {
					return
				}
				if err != nil {
					t.Errorf("write to WebApp %s: %v", targets[n], err)
					return
				}
				writes[n].Add(1)
			}
		})
	}
	var changes [3]spans
	var cpu [3]float64
	var took [3]time.Duration
	for turn := range 3 * turns {
		n := turn % 3
		phase.Store(int64(n))
		from, began := spent(), time.Now()
		changes[n] = append(changes[n], reactions.measure(fmt.Sprint(turn), good, slice)...)
		cpu[n] += spent() - from
		took[n] += time.Since(began)
	}
	phase.Store(1)
	for _, all := range changes {
		slices.Sort(all)
	}
	log := p.Log()[logged:]

	deleting := time.Now()
	w.delete("bad")
	w.eventually(patience, "the bad WebApp to go while it is written", func() (bool, string) {
		_, err := bad.Get(t.Context(), "bad", metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	deleted := time.Since(deleting)
	close(stop)
	writing.Wait()

	// Each copy is audited every 5 minutes and each watch ends after 5 to 10, whatever is
	// written; in a minute neither happens.
	fives := int(time.Since(since) / (4 * time.Minute))
	if after := seen(); after.lists != before.lists || after.watches > before.watches+float64(fives) || before.watches < 1 {
		t.Errorf("the kind was listed or watched anew: %+v, before %+v, %d more are in order", after, before, fives)
	}
	if anew := w.requests(since, func(e controlplane.AuditEvent) bool { return e.Resource == "webapps" && e.Verb == "list" }); len(anew) > fives {
		t.Errorf("lists of WebApps: %v, %d of them are in order", count(anew), fives)
	}
	lines := strings.Count(log, w.namespace+"/bad") + strings.Count(log, `name="bad"`)
	if most := 5 + int(time.Since(since)/time.Minute); lines > most { // at -v=4: a frozen key has a pass a minute
		t.Errorf("%d log lines name the bad WebApp, want %d at most:\n%s", lines, most, log)
	}
	counts := w.writes(turned)
	if n := counts["patch webapps/status bad"]; n == 0 || n > 3 {
		t.Errorf("%d writes to its status: %v", n, counts)
	}
	told := 0
	for _, e := range w.events("bad") {
		if e == "Warning Undecodable" {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d Events, want 1: %q", told, w.events("bad"))
	}
	// The deletion was under fire too, but took no time to speak of.
	var reached [3]float64
	for n := range reached {
		reached[n] = float64(writes[n].Load()) / took[n].Seconds()
	}
	if reached[1] < rate/4 { // machines that are busy write less often
		t.Errorf("%.1f writes a second: this test shows nothing", reached[1])
	}
	// How quick a busy machine is proves nothing: docs/measurements.md keeps a run.
	var rows strings.Builder
	for n, name := range []string{"quiet", "the bad one written", "a good one written"} {
		fmt.Fprintf(&rows, "| %s %.1f times a second, %s | %s | %.2f s |\n", name, reached[n], took[n].Round(time.Second), changes[n], cpu[n])
	}
	p99 := func(n int) float64 { return float64(changes[n].quantile(0.99)) }
	t.Logf("\n|  | changes | p50 | p99 | CPU |\n| --- | --- | --- | --- | --- |\n%sp99 with the bad one written: %.2f of that of the quiet windows, %.2f of that with a good one written",
		&rows, p99(1)/p99(0), p99(1)/p99(2))
	t.Logf("%d writes, %d log lines, %d status writes, %d Events; deleted in %s", writes[1].Load(), lines, counts["patch webapps/status bad"], told, deleted.Round(time.Millisecond))
}

// corrupt changes what etcd holds of a WebApp.
func (w *world) corrupt(name, from, to string) {
	w.Helper()
	key := path.Join("/registry", v1alpha1.SchemeGroupVersion.Group, "webapps", w.namespace, name)
	// Whoever else writes meanwhile loses: there is nobody once it has settled.
	raw, err := w.plane.EtcdGet(w.Context(), key)
	if err != nil {
		w.Fatal(err)
	}
	if !strings.Contains(string(raw), from) {
		w.Fatalf("no %s in %s", from, raw)
	}
	if _, err := w.plane.EtcdPut(w.Context(), key, []byte(strings.Replace(string(raw), from, to, 1))); err != nil {
		w.Fatal(err)
	}
}

// reactions measures how long it takes from the answer to a change of a WebApp until
// a watch shows its Deployment with it.
type reactions struct {
	w     *world
	mu    sync.Mutex
	shown map[string]time.Time // by image
}

func (w *world) reactions() *reactions {
	w.Helper()
	r := &reactions{w: w, shown: map[string]time.Time{}}
	record(w, "deployments", func(o runtime.Object) struct{} {
		image := o.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Image
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, ok := r.shown[image]; !ok {
			r.shown[image] = time.Now()
		}
		return struct{}{}
	})
	return r
}

type spans []time.Duration

func (s spans) quantile(q float64) time.Duration { return s[int(q*float64(len(s)-1))] }

func (s spans) String() string {
	return fmt.Sprintf("%d | %s | %s", len(s), s.quantile(0.5).Round(time.Millisecond/10), s.quantile(0.99).Round(time.Millisecond/10))
}

// measure changes one good WebApp after another, 10 a second, for a time, and waits
// until all of it is acted on. There have to be so many that none is changed twice: a
// change that the next one has overtaken need never show.
func (r *reactions) measure(phase string, good int, span time.Duration) spans {
	r.w.Helper()
	answered := map[string]time.Time{}
	tick := time.NewTicker(time.Second / 10)
	defer tick.Stop()
	for n, end := 0, time.Now().Add(span); time.Now().Before(end); n++ {
		image := fmt.Sprintf("registry.example/app:%s-%d", phase, n)
		if _, err := r.w.platform.PlatformV1alpha1().WebApps(r.w.namespace).Patch(r.w.Context(), fmt.Sprintf("web-%d", n%good), types.MergePatchType,
			fmt.Appendf(nil, `{"spec":{"image":%q}}`, image), metav1.PatchOptions{}); err != nil {
			r.w.Fatal(err)
		}
		answered[image] = time.Now()
		<-tick.C
	}
	var all spans
	r.w.eventually(patience, "all changes to be acted on", func() (bool, string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		all = all[:0]
		for image, at := range answered {
			if shown, ok := r.shown[image]; ok {
				all = append(all, max(0, shown.Sub(at)))
			}
		}
		return len(all) == len(answered), fmt.Sprintf("%d of %d", len(all), len(answered))
	})
	return all
}
