package undecodable_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

// lifetime is what happens to a WebApp of that name. "bad" is drainTimeout: "1", with
// another image that must never be rolled out; "other" is replicas: "two".
type lifetime struct {
	before, after string // "", good, bad, other, mended, recreated
	cached, aside bool   // in the end
	image         string // of its Deployment in the end, "" if there is none
}

const firstImage, secondImage = "registry.example.com/shop:1.0", "registry.example.com/shop:3.0"

var lifetimes = map[string]lifetime{
	"created-bad":   {before: "", after: "bad", aside: true},
	"good-bad":      {before: "good", after: "bad", cached: true, aside: true, image: firstImage},
	"bad-good":      {before: "bad", after: "mended", cached: true, image: secondImage},
	"bad-other":     {before: "bad", after: "other", cached: true, aside: true, image: firstImage},
	"bad-deleted":   {before: "bad", after: "", image: firstImage}, // nobody collects garbage here
	"recreated-bad": {before: "good", after: "recreated", aside: true, image: firstImage},
	"stays-bad":     {before: "bad", after: "bad", cached: true, aside: true, image: firstImage},
}

// Every transition at once, on a real API server behind a proxy that breaks watches,
// with the WebApp controller at work: learned from an open watch, from a watch that
// goes on where it broke off, and by a relist of each kind, and then by a process that
// has just started. What is cached and set aside is right, children are written for
// mended objects alone, and no watch begins before what has been seen.
func TestSystemMatrix(t *testing.T) {
	cp := plane.ForTest(t)
	for _, mode := range []string{"WATCH", "WATCH, resumed", "WatchList", "LIST", "paged"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, cp)
			p, err := faultproxy.Start(faultproxy.Config{Upstream: cp.Config()})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Close)
			lister := &lister{mode: mode}
			w.config = p.ClientConfig(cp.Config())
			w.config.QPS = -1
			w.config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
				lister.RoundTripper = rt
				return lister
			})
			stop := w.start()
			w.prepare()
			children := w.children()

			watches := faultproxy.Match{Resource: "webapps", Verbs: []string{"watch", "list"}, Namespace: w.namespace}
			filled := p.Count(faultproxy.Match{Resource: "webapps", Verbs: []string{"list"}, Namespace: w.namespace}) + p.Count(faultproxy.Match{Resource: "webapps", Watch: faultproxy.OnlyWatchList, Namespace: w.namespace})
			if mode == "WATCH" {
				w.happen()
			} else {
				away := p.Add(faultproxy.Rule{Match: watches, Scope: faultproxy.OnlyNew, Answer: &faultproxy.Answer{Code: http.StatusTooManyRequests, RetryAfter: time.Second}})
				w.cut(p, watches)
				w.happen()
				if mode != "WATCH, resumed" {
					p.Add(faultproxy.Rule{Match: faultproxy.Match{Resource: "webapps", Namespace: w.namespace, Watch: faultproxy.OnlyPlainWatch}, Scope: faultproxy.OnlyNew, Times: 1,
						Answer: &faultproxy.Answer{Status: &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired}}})
				}
				away.Remove()
			}
			w.outcome(true)
			w.untouched(children)

			lists := p.Count(faultproxy.Match{Resource: "webapps", Verbs: []string{"list"}, Namespace: w.namespace}) + p.Count(faultproxy.Match{Resource: "webapps", Watch: faultproxy.OnlyWatchList, Namespace: w.namespace})
			if relisted := lists > filled; relisted == strings.HasPrefix(mode, "WATCH") {
				t.Errorf("listed again: %v", relisted)
			}
			// No replay: a watch that is broken now goes on from there, and has nothing to say.
			w.annotate("bad-good", 1) // client-go lists again after a watch of a second without news
			past := w.object("bad-good").GetResourceVersion()
			eventually(t, "news", func() (bool, string) {
				got := w.copies.Snapshot().ResourceVersion
				return number(got) >= number(past), got
			})
			before := p.Count(watches)
			w.cut(p, watches)
			var last faultproxy.Request
			eventually(t, "another watch", func() (bool, string) {
				all := p.Requests(watches)
				last = all[len(all)-1]
				return len(all) > before && last.Code == http.StatusOK, fmt.Sprintf("%+v", last)
			})
			u, err := url.Parse(last.URL)
			if err != nil {
				t.Fatal(err)
			}
			if from := u.Query().Get("resourceVersion"); last.WatchList || last.Verb != "watch" || number(from) < number(past) {
				t.Errorf("watched again from %s, want %s or later: %+v", from, past, last)
			}

			// A process that starts now has no good version of what is bad.
			stop()
			w.start()
			w.outcome(false)
			w.untouched(children)
			if mode == "paged" && lister.pages.Load() < 4 {
				t.Errorf("%d pages", lister.pages.Load())
			}
			var versions []string
			for _, name := range slices.Sorted(maps.Keys(lifetimes)) {
				versions = append(versions, name+" "+w.state(name))
			}
			t.Logf("%s: %s; watched again from %s after %s", mode, strings.Join(versions, ", "), u.Query().Get("resourceVersion"), past)
		})
	}
}

// cut breaks the open watches.
func (w *world) cut(p *faultproxy.Proxy, watches faultproxy.Match) {
	w.Helper()
	open := p.Requests(watches)
	rule := p.Add(faultproxy.Rule{Match: watches, Scope: faultproxy.OnlyOpen, Close: faultproxy.EOF})
	defer rule.Remove()
	eventually(w.T, "the watches to end", func() (bool, string) {
		ended := 0
		for _, r := range p.Requests(watches)[:len(open)] {
			if !r.Ended.IsZero() {
				ended++
			}
		}
		return ended == len(open), fmt.Sprintf("%d of %d", ended, len(open))
	})
}

func number(resourceVersion string) int {
	n, _ := strconv.Atoi(resourceVersion)
	return n
}

// lister makes the informer of WebApps list in one way.
type lister struct {
	http.RoundTripper
	mode  string
	pages atomic.Int32
}

func (l *lister) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	if !strings.HasSuffix(r.URL.Path, "/webapps") || r.Method != http.MethodGet || l.mode != "LIST" && l.mode != "paged" {
		return l.RoundTripper.RoundTrip(r)
	}
	if query.Has("sendInitialEvents") {
		return &http.Response{StatusCode: http.StatusUnprocessableEntity, Header: http.Header{"Content-Type": {"application/json"}}, Request: r,
			Body: io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`))}, nil
	}
	if l.mode == "paged" && !query.Has("watch") {
		l.pages.Add(1)
		query.Set("limit", "2")
		query.Del("resourceVersion")
		query.Del("resourceVersionMatch")
		r = r.Clone(r.Context())
		r.URL.RawQuery = query.Encode()
	}
	return l.RoundTripper.RoundTrip(r)
}

var badSpec = map[string]any{"drainTimeout": "1", "image": "registry.example.com/shop:2.0"}

// prepare brings every WebApp to where it begins.
func (w *world) prepare() {
	w.Helper()
	for name, l := range lifetimes {
		if l.before != "" {
			w.create(name, nil)
		}
	}
	w.Cleanup(func() { // or no finalizer can be removed
		for name, l := range lifetimes {
			if l.after == "other" {
				_, _ = w.webApps.Patch(context.Background(), name, types.MergePatchType, []byte(`{"spec":{"replicas":3}}`), metav1.PatchOptions{})
			}
		}
	})
	for name, l := range lifetimes {
		if l.before == "" {
			continue
		}
		w.deployment(name)
		w.condition(name, "Ready", "False RollingOut") // nothing is written from here on
		if l.before == "bad" {
			w.corrupt(name, badSpec)
			eventually(w.T, name+" to be set aside", func() (bool, string) { return w.aside(name), "" })
		}
	}
	w.condition("bad-good", "Decodable", "False Undecodable")
}

// happen makes the transitions.
func (w *world) happen() {
	w.Helper()
	remove := func(name string) { // past every finalizer
		w.webAppDelete(name)
		if _, err := w.webApps.Patch(w.Context(), name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
			w.Fatal(err)
		}
		w.gone(name)
	}
	for name, l := range lifetimes {
		switch {
		case l.before == "":
			w.storeRaw(name)
		case l.after == "":
			remove(name)
		case l.after == "recreated":
			remove(name)
			w.storeRaw(name)
		case l.after == "mended":
			if _, err := w.webApps.Patch(w.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"drainTimeout":"30s","image":%q}}`, secondImage), metav1.PatchOptions{}); err != nil {
				w.Fatal(err)
			}
		case l.after == "other":
			w.corrupt(name, map[string]any{"drainTimeout": "30s", "replicas": "two"})
		default:
			w.corrupt(name, badSpec)
		}
	}
}

// storeRaw puts a bad WebApp into etcd, which nobody has ever seen good.
func (w *world) storeRaw(name string) {
	w.Helper()
	object := fmt.Sprintf(`{"apiVersion":%q,"kind":"WebApp","metadata":{"name":%q,"namespace":%q,"uid":"raw-%s-%s","generation":1,"creationTimestamp":"2026-01-01T00:00:00Z"},"spec":{"image":%q,"replicas":3,"drainTimeout":"1"}}`,
		v1alpha1.SchemeGroupVersion, name, w.namespace, w.namespace, name, badSpec["image"])
	if _, err := w.plane.EtcdPut(w.Context(), controlplane.EtcdKey(resource.GroupResource(), w.namespace, name), []byte(object)); err != nil {
		w.Fatal(err)
	}
}

func (w *world) aside(name string) bool {
	_, bad := w.copies.Quarantined(cache.NewObjectName(w.namespace, name))
	return bad
}

func (w *world) state(name string) string {
	_, cached, _ := w.copies.Indexer().GetByKey(w.namespace + "/" + name)
	return fmt.Sprintf("cached %v, set aside %v", cached, w.aside(name))
}

// outcome waits until every WebApp is where it ends. A process that has seen the good
// versions keeps them.
func (w *world) outcome(seenGood bool) {
	w.Helper()
	for name, l := range lifetimes {
		want := fmt.Sprintf("cached %v, set aside %v", l.cached && (seenGood || !l.aside), l.aside)
		eventually(w.T, name+": "+want, func() (bool, string) {
			if l.aside {
				record, _ := w.copies.Quarantined(cache.NewObjectName(w.namespace, name))
				if live := w.object(name).GetResourceVersion(); record.ResourceVersion != live {
					return false, fmt.Sprintf("%s, seen %s of %s", w.state(name), record.ResourceVersion, live)
				}
			}
			return w.state(name) == want, w.state(name)
		})
	}
	eventually(w.T, "bad-good to be rolled out", func() (bool, string) {
		image := w.deployment("bad-good").Spec.Template.Spec.Containers[0].Image
		return image == secondImage, image
	})
	for name, l := range lifetimes {
		if l.aside {
			w.condition(name, "Decodable", "False Undecodable")
		}
	}
	w.condition("bad-good", "Decodable", "True Decoded")
}

// children are the resourceVersions of what was made.
func (w *world) children() map[string]string {
	w.Helper()
	all := map[string]string{}
	deployments, err := w.kube.AppsV1().Deployments(w.namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, d := range deployments.Items {
		all["Deployment "+d.Name] = d.ResourceVersion + " " + d.Spec.Template.Spec.Containers[0].Image
	}
	services, err := w.kube.CoreV1().Services(w.namespace).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for _, s := range services.Items {
		all["Service "+s.Name] = s.ResourceVersion
	}
	return all
}

// untouched expects the children of what is bad to be as before, and nobody's to have
// the image of a bad spec.
func (w *world) untouched(before map[string]string) {
	w.Helper()
	now := w.children()
	if len(now) != len(before) || len(before) != 2*6 {
		w.Errorf("children: %v, before %v", now, before)
	}
	for child, was := range before {
		_, name, _ := strings.Cut(child, " ")
		if after := lifetimes[name].after; after == "mended" || after == "" || after == "recreated" {
			continue // written because it is good, or drained where the deletion was seen
		}
		if now[child] != was {
			w.Errorf("%s has been written: %s, before %s", child, now[child], was)
		}
	}
	for name, l := range lifetimes {
		if got := now["Deployment "+name]; l.image == "" && got != "" || l.image != "" && !strings.HasSuffix(got, " "+l.image) {
			w.Errorf("Deployment %s: %q, want the image %q", name, got, l.image)
		}
	}
}
