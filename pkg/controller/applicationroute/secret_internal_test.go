package applicationroute

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

func TestTransformSecret(t *testing.T) {
	created, deleted := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	full := func() *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{
			TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "shop", Name: "cert", UID: "uid-1", ResourceVersion: "7", CreationTimestamp: created, DeletionTimestamp: &deleted,
				DeletionGracePeriodSeconds: ptr.To[int64](0), GenerateName: "c", Generation: 2,
				Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "secret"},
				Finalizers: []string{"f"}, OwnerReferences: []metav1.OwnerReference{{Name: "o"}}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
			},
		}
	}
	want := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "cert", UID: "uid-1", ResourceVersion: "7", CreationTimestamp: created, DeletionTimestamp: &deleted}}
	before := full()
	got := TransformSecret(before)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what is kept (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(full(), before); diff != "" {
		t.Errorf("what was given has been changed, and may be in the cache (-want +got):\n%s", diff)
	}
	if again := TransformSecret(got); again != got {
		t.Error("a transformed object is made anew, though it may be in the cache")
	}
}

// answers is a transport that answers with status and body, if it is not nil after
// waiting for wait.
type answers struct {
	status int
	body   string
	hang   bool
	asked  []string
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	a.asked = append(a.asked, fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), r.Header.Get("Accept")))
	if a.hang {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return &http.Response{StatusCode: a.status, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(a.body))}, nil
}

func newTestSecretTypes(t *testing.T, a *answers) *secretTypes {
	t.Helper()
	kube, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://server"}, &http.Client{Transport: a})
	if err != nil {
		t.Fatal(err)
	}
	return newSecretTypes(kube.CoreV1().RESTClient())
}

func row(secretType, resourceVersion string) string {
	return fmt.Sprintf(`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":%q},
		"columnDefinitions":[{"name":"Name"},{"name":"Type"},{"name":"Data"},{"name":"Age"}],
		"rows":[{"cells":["cert",%q,2,"5s"],"object":null}]}`, resourceVersion, secretType)
}

func status(s *apierrors.StatusError) string {
	s.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	data, _ := json.Marshal(s.ErrStatus)
	return string(data)
}

func cachedSecret(uid, resourceVersion string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cert", UID: types.UID(uid), ResourceVersion: resourceVersion}}
}

func TestSecretTypeAnswers(t *testing.T) {
	secrets := corev1.Resource("secrets")
	cases := map[string]struct {
		reason string
		answer answers
		want   string
		is     func(error) bool
	}{
		"TLS":       {"the cell under Type", answers{status: 200, body: row("kubernetes.io/tls", "7")}, "kubernetes.io/tls", nil},
		"Opaque":    {"whatever it says", answers{status: 200, body: row("Opaque", "7")}, "Opaque", nil},
		"Gone":      {"deleted meanwhile", answers{status: 404, body: status(apierrors.NewNotFound(secrets, "cert"))}, "", apierrors.IsNotFound},
		"Forbidden": {"get is missing in the role", answers{status: 403, body: status(apierrors.NewForbidden(secrets, "cert", errors.New("no")))}, "", apierrors.IsForbidden},
		"NoTables":  {"an old server, or another one", answers{status: 406, body: status(&apierrors.StatusError{ErrStatus: metav1.Status{Status: "Failure", Code: 406, Reason: metav1.StatusReasonNotAcceptable}})}, "", apierrors.IsNotAcceptable},
		"NoTable":   {"the Secret itself", answers{status: 200, body: `{"kind":"Secret","apiVersion":"v1","type":"Opaque"}`}, "", isNoType},
		"NoJSON":    {"a proxy's page", answers{status: 200, body: `<html>`}, "", isNoType},
		"NoColumn":  {"another table", answers{status: 200, body: strings.ReplaceAll(row("Opaque", "7"), "Type", "Sort")}, "", isNoType},
		"NoRow":     {"an empty table", answers{status: 200, body: row("Opaque", "7")[:strings.Index(row("Opaque", "7"), `"rows"`)] + `"rows":[]}`}, "", isNoType},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := newTestSecretTypes(t, &tc.answer).of(t.Context(), cachedSecret("uid-1", "7"))
			if got != tc.want || (tc.is == nil) != (err == nil) || tc.is != nil && !tc.is(err) {
				t.Errorf("%s: got %q, %v, want %q", tc.reason, got, err, tc.want)
			}
			want := []string{"GET /api/v1/namespaces/shop/secrets/cert?includeObject=None application/json;as=Table;v=v1;g=meta.k8s.io"}
			if diff := cmp.Diff(want, tc.answer.asked); diff != "" {
				t.Errorf("%s: requests (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func isNoType(err error) bool { return errors.Is(err, errNoType) }

// A server that does not answer costs a pass 10 s, and is no deadline of the pass.
func TestSecretTypeTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := newTestSecretTypes(t, &answers{hang: true}).of(t.Context(), cachedSecret("uid-1", "7"))
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != secretTypeTimeout || t.Context().Err() != nil {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		lost := errors.New("no longer the leader")
		cancel(lost)
		if _, err := newTestSecretTypes(t, &answers{hang: true}).of(ctx, cachedSecret("uid-1", "7")); !errors.Is(err, lost) {
			t.Errorf("of a pass that was cancelled: %v, want its cause", err)
		}
	})
}

func TestSecretTypeIsAskedForOnce(t *testing.T) {
	server := &answers{status: 200, body: row("kubernetes.io/tls", "7")}
	s := newTestSecretTypes(t, server)
	ask := func(why string, secret *metav1.PartialObjectMetadata, want string, requests int) {
		t.Helper()
		server.asked = nil
		if got, err := s.of(t.Context(), secret); err != nil || got != want || len(server.asked) != requests {
			t.Errorf("%s: got %q, %v with %d requests, want %q with %d", why, got, err, len(server.asked), want, requests)
		}
	}
	ask("at first", cachedSecret("uid-1", "7"), "kubernetes.io/tls", 1)
	ask("again", cachedSecret("uid-1", "7"), "kubernetes.io/tls", 0)
	ask("renewed: the type of a Secret cannot change", cachedSecret("uid-1", "8"), "kubernetes.io/tls", 0)
	server.body = row("Opaque", "9")
	ask("another of its name", cachedSecret("uid-2", "9"), "Opaque", 1)
	ask("another of its name, again", cachedSecret("uid-2", "9"), "Opaque", 0)
	s.forget(cache.NewObjectName("shop", "cert"))
	ask("forgotten", cachedSecret("uid-2", "9"), "Opaque", 1)

	s.forget(cache.NewObjectName("shop", "cert"))
	ask("the cache is behind: this may be of another one", cachedSecret("uid-1", "7"), "Opaque", 1)
	ask("so it is not remembered for it", cachedSecret("uid-1", "7"), "Opaque", 1)
}

func TestSecretTypesAreBounded(t *testing.T) {
	s := newSecretTypes(nil)
	for n := range maxSecretTypes + 100 {
		s.remember(cache.NewObjectName("shop", fmt.Sprint(n)), secretType{"uid", "Opaque"})
	}
	if len(s.known) != maxSecretTypes {
		t.Errorf("%d are remembered, want %d", len(s.known), maxSecretTypes)
	}
	last := cache.NewObjectName("shop", fmt.Sprint(maxSecretTypes+99))
	s.remember(last, secretType{"uid-2", "Opaque"})
	if got, ok := s.recall(last); !ok || got.uid != "uid-2" || len(s.known) != maxSecretTypes {
		t.Errorf("the last one is %v, %t, of %d", got, ok, len(s.known))
	}
}

// A Secret wakes the routes that name it when it comes, goes, or is another of its name;
// what changes in one that stays is not shown in any status.
func TestSecretWakesItsRoutes(t *testing.T) {
	secret := func(uid types.UID, resourceVersion string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-tls", UID: uid, ResourceVersion: resourceVersion}}
	}
	gone := func(s cache.DeletedObject[*metav1.PartialObjectMetadata]) func(secretHandlers) {
		return func(h secretHandlers) { h.DeleteFunc(s) }
	}
	for name, tc := range map[string]struct {
		reason    string
		event     func(secretHandlers)
		want      enqueued
		forgotten bool
	}{
		"Created":  {"what was missing is there", func(h secretHandlers) { h.AddFunc(secret("a", "1"), false) }, enqueued{"1 shop/web"}, false},
		"Initial":  {"nothing has happened", func(h secretHandlers) { h.AddFunc(secret("a", "1"), true) }, enqueued{"0 shop/web"}, false},
		"Renewed":  {"its type cannot change", func(h secretHandlers) { h.UpdateFunc(secret("a", "1"), secret("a", "2")) }, nil, false},
		"Replaced": {"by one of another type, it may be", func(h secretHandlers) { h.UpdateFunc(secret("a", "1"), secret("b", "2")) }, enqueued{"1 shop/web"}, false},
		"Deleted":  {"it is missing", gone(cache.DeletedObject[*metav1.PartialObjectMetadata]{OptionalObj: secret("a", "1")}), enqueued{"1 shop/web"}, true},
		"Tombstone": {"it is missing, since when is not known", gone(cache.DeletedObject[*metav1.PartialObjectMetadata]{
			FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "shop/web-tls"}}), enqueued{"1 shop/web"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			named, other, elsewhere := claiming("web", 1, "a.example.com"), claiming("other", 2, "b.example.com"), claiming("web", 3, "c.example.com")
			named.Spec.TLSSecret, other.Spec.TLSSecret, elsewhere.Spec.TLSSecret, elsewhere.Namespace = "web-tls", "other-tls", "web-tls", "elsewhere"
			c := newTestController(t, named, other, elsewhere, claiming("plain", 4, "d.example.com"))
			c.secretTypes.remember(cache.NewObjectName("shop", "web-tls"), secretType{"a", "kubernetes.io/tls"})
			var got enqueued
			tc.event(c.secretHandlers(got.enqueue))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if _, known := c.secretTypes.recall(cache.NewObjectName("shop", "web-tls")); known == tc.forgotten {
				t.Errorf("%s: its type is remembered: %t, want %t", tc.reason, known, !tc.forgotten)
			}
		})
	}
}

type secretHandlers = cache.TypedResourceEventHandlerDetailedFuncs[*metav1.PartialObjectMetadata]
