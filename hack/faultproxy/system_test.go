package faultproxy_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

var plane controlplane.Shared

func TestMain(m *testing.M) { os.Exit(plane.Main(m)) }

// real is an informer for ConfigMaps behind a proxy, and a writer that goes
// around it.
type real struct {
	*faultproxy.Proxy
	t         *testing.T
	namespace string
	writer    *kubernetes.Clientset
	client    *kubernetes.Clientset
	informer  cache.SharedIndexInformer
	writes    int
}

func setupReal(t *testing.T, cfg faultproxy.Config, contentType string) *real {
	t.Helper()
	cp := plane.ForTest(t)
	cfg.Upstream = cp.Config()
	p, err := faultproxy.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	client := func(c *rest.Config) *kubernetes.Clientset {
		out, err := kubernetes.NewForConfig(c)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	through := rest.CopyConfig(cp.Config())
	through.UserAgent, through.ContentType = "informer", contentType
	return &real{
		Proxy: p, t: t, namespace: cp.Namespace(t),
		writer: client(cp.Config()), client: client(p.ClientConfig(through)),
	}
}

func (r *real) startInformer() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Background()))
	r.informer = informers.NewSharedInformerFactoryWithOptions(r.client, 0, informers.WithNamespace(r.namespace)).Core().V1().ConfigMaps().Informer()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.informer.RunWithContext(ctx)
	}()
	r.t.Cleanup(func() {
		cancel()
		<-done
	})
}

func (r *real) write() string {
	r.t.Helper()
	r.writes++
	name := fmt.Sprintf("m%d", r.writes)
	_, err := r.writer.CoreV1().ConfigMaps(r.namespace).Create(r.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	return name
}

func (r *real) has(name string) bool {
	_, ok, _ := r.informer.GetStore().GetByKey(r.namespace + "/" + name)
	return ok
}

func (r *real) eventually(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within %s: %s; store %q; requests %v", patience, what, r.informer.GetStore().ListKeys(), r.Counts(faultproxy.Match{}))
		}
		<-time.After(10 * time.Millisecond)
	}
}

func (r *real) wantSeen(name string) {
	r.t.Helper()
	r.eventually("the informer sees "+name, func() bool { return r.has(name) })
}

var onConfigMaps = faultproxy.Match{Verbs: []string{"watch"}, Resource: "configmaps"}

func (r *real) requests(verb string) int {
	return r.Count(faultproxy.Match{Verbs: []string{verb}, Resource: "configmaps"})
}

func TestSystemInformer(t *testing.T) {
	// Built-in kinds speak protobuf unless told otherwise.
	for _, contentType := range []string{"", "application/json"} {
		t.Run("as "+contentType, func(t *testing.T) {
			t.Parallel()
			r := setupReal(t, faultproxy.Config{}, contentType)
			first := r.write()

			// Without the end of the initial events nothing is ever synced, and
			// nobody falls back to LIST.
			strip := r.Add(faultproxy.Rule{Match: onConfigMaps, StripInitialEventsEnd: true})
			r.startInformer()
			r.eventually("initial events have come", func() bool {
				requests := r.Requests(onConfigMaps)
				return len(requests) > 0 && requests[0].Frames > 0
			})
			<-time.After(time.Second)
			if r.informer.HasSynced() {
				t.Fatal("synced although the bookmark was stripped")
			}
			strip.Remove()
			end := r.Add(faultproxy.Rule{Match: onConfigMaps, Scope: faultproxy.OnlyOpen, Close: faultproxy.EOF})
			r.eventually("synced", r.informer.HasSynced)
			end.Remove()
			r.wantSeen(first)
			r.wantSeen(r.write())

			// An ERROR in the stream is one relist, and is understood: 410.
			watches, lists := r.requests("watch"), r.requests("list")
			r.Add(faultproxy.Rule{Match: onConfigMaps, Times: 1, Scope: faultproxy.OnlyOpen, InjectError: faultproxy.Expired()})
			r.wantSeen(r.write())
			r.eventually("relisted by a WatchList", func() bool {
				return r.requests("watch") > watches && r.requests("list") == lists
			})
			again := r.Requests(onConfigMaps)
			if last := again[len(again)-1]; !last.WatchList {
				t.Errorf("after the ERROR came a plain watch: %s", last.URL)
			}

			freeze := r.Add(faultproxy.Rule{Match: onConfigMaps, Freeze: faultproxy.FreezeStream})
			frozen := r.write()
			<-time.After(300 * time.Millisecond)
			if r.has(frozen) {
				t.Error("a frozen watch delivered")
			}
			// The same TCP connection is alive.
			if _, err := r.client.CoreV1().ConfigMaps(r.namespace).Get(t.Context(), frozen, metav1.GetOptions{}); err != nil {
				t.Error(err)
			}
			freeze.Remove()
			r.wantSeen(frozen)

			// A cut connection is one plain watch from where it was.
			<-time.After(time.Second) // younger watches relist
			watches = r.requests("watch")
			r.ResetConnections()
			r.wantSeen(r.write())
			if n := r.requests("watch"); n != watches+1 || r.requests("list") != lists {
				t.Errorf("%d watches and %d lists after a reset", n-watches, r.requests("list")-lists)
			}
		})
	}
}

func TestSystemWriteWhoseResponseIsLost(t *testing.T) {
	t.Parallel()
	r := setupReal(t, faultproxy.Config{}, "")
	r.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"create"}}, Times: 1, DropResponse: true})
	create := func() error {
		_, err := r.client.CoreV1().ConfigMaps(r.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
		return err
	}
	if err := create(); err == nil || apierrors.IsAlreadyExists(err) {
		t.Errorf("the lost response: %v", err)
	}
	if err := create(); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the second try: %v", err)
	}
}

func TestSystemOpaqueResourceVersions(t *testing.T) {
	t.Parallel()
	r := setupReal(t, faultproxy.Config{OpaqueResourceVersions: true}, "")
	name := r.write()
	r.startInformer()
	r.wantSeen(name)
	r.wantSeen(r.write())
	if rv := r.informer.LastSyncResourceVersion(); !strings.HasPrefix(rv, "opaque.") {
		t.Errorf("resourceVersion %q", rv)
	}
	maps := r.client.CoreV1().ConfigMaps(r.namespace)
	object, err := maps.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.Data = map[string]string{"a": "b"}
	if _, err := maps.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Update(t.Context(), object, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an old version: %v", err)
	}
}

// The API server sees who asks, not the proxy.
func TestSystemUserIsTheClients(t *testing.T) {
	t.Parallel()
	r := setupReal(t, faultproxy.Config{}, "")
	cp := plane.ForTest(t)
	cfg, err := cp.ConfigFor("alice")
	if err != nil {
		t.Fatal(err)
	}
	whoami := func(cfg *rest.Config) (string, error) {
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		return review.Status.UserInfo.Username, nil
	}
	if user, err := whoami(r.ClientConfig(cfg)); user != "alice" {
		t.Errorf("certificate: %q, %v", user, err)
	}
	if user, err := whoami(r.ClientConfig(cp.Config())); user != "steadwatch-admin" {
		t.Errorf("admin: %q, %v", user, err)
	}
	if user, err := whoami(r.ClientConfig(&rest.Config{BearerToken: "wrong"})); !apierrors.IsUnauthorized(err) {
		t.Errorf("a wrong token went through as %q, %v", user, err)
	}
	// A stranger's certificate must not become the proxy's own user.
	stranger, err := cp.ConfigFor("bob")
	if err != nil {
		t.Fatal(err)
	}
	stranger.Host, stranger.CAData = r.URL(), r.ClientConfig(&rest.Config{}).CAData
	if user, err := whoami(stranger); !apierrors.IsUnauthorized(err) {
		t.Errorf("an unknown certificate went through as %q, %v", user, err)
	}
	if codes := r.Requests(faultproxy.Match{Resource: "selfsubjectreviews"}); len(codes) != 4 || codes[3].Code != http.StatusUnauthorized {
		t.Errorf("%+v", codes)
	}
}
