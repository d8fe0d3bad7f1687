package applicationroute

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/faultproxy"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// marker is in the data of every Secret of these tests, at a place where its base64 is
// marker64 whatever follows.
const marker = "steadwatch-secret-marker"

var marker64 = base64.StdEncoding.EncodeToString([]byte(marker))

func markedSecret(namespace, name string, secretType corev1.SecretType) *corev1.Secret {
	data := map[string][]byte{corev1.TLSCertKey: []byte(marker), corev1.TLSPrivateKeyKey: []byte(marker)}
	return &corev1.Secret{TypeMeta: metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: secretType, Data: data}
}

// appliedByKubectl has its own data in an annotation.
func appliedByKubectl(t *testing.T, s *corev1.Secret) *corev1.Secret {
	t.Helper()
	applied, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	s.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: string(applied)}
	return s
}

// wire keeps all that comes in.
type wire struct {
	mu    sync.Mutex
	bytes bytes.Buffer
}

func (w *wire) around(inner http.RoundTripper) http.RoundTripper {
	return wireTransport(func(r *http.Request) (*http.Response, error) {
		resp, err := inner.RoundTrip(r)
		if err == nil {
			resp.Body = struct {
				io.Reader
				io.Closer
			}{io.TeeReader(resp.Body, w), resp.Body}
		}
		return resp, err
	})
}

type wireTransport func(*http.Request) (*http.Response, error)

func (f wireTransport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bytes.Write(p)
}

// carried says whether anything of a Secret's data has come in.
func (w *wire) carried() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Contains(w.bytes.Bytes(), []byte(marker)) || bytes.Contains(w.bytes.Bytes(), []byte(marker64))
}

// R88: the type of a Secret is told without its data, and without the annotation that
// repeats it, ever being sent.
func TestSystemTypeOfSecret(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Config{})
	namespace := cp.Namespace(t)
	admin := kubernetes.NewForConfigOrDie(cp.Config()).CoreV1().Secrets(namespace)
	var w wire
	cfg := cp.Config()
	cfg.Wrap(w.around)
	types := newSecretTypes(kubernetes.NewForConfigOrDie(cfg).CoreV1().RESTClient())
	for name, tc := range map[string]struct {
		secret *corev1.Secret
		want   string
	}{
		"TLS":     {markedSecret(namespace, "tls", corev1.SecretTypeTLS), "kubernetes.io/tls"},
		"Opaque":  {markedSecret(namespace, "opaque", ""), "Opaque"},
		"Applied": {appliedByKubectl(t, markedSecret(namespace, "applied", corev1.SecretTypeTLS)), "kubernetes.io/tls"},
	} {
		t.Run(name, func(t *testing.T) {
			made, err := admin.Create(t.Context(), tc.secret, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			got, err := types.of(t.Context(), &metav1.PartialObjectMetadata{ObjectMeta: made.ObjectMeta})
			if err != nil || got != tc.want {
				t.Errorf("got %q, %v, want %q", got, err, tc.want)
			}
			if known, ok := types.recall(cache.MetaObjectToName(made)); !ok || known != (secretType{made.UID, tc.want}) {
				t.Errorf("remembered: %v, %t: the row has another revision than the Secret", known, ok)
			}
			made.Type = "example.com/other"
			if _, err := admin.Update(t.Context(), made, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
				t.Errorf("change of the type: %v, want Invalid: it must not be remembered by UID", err)
			}
		})
	}
	if w.carried() || w.bytes.Len() == 0 {
		t.Errorf("data of a Secret has been sent: %t, in %d bytes", w.carried(), w.bytes.Len())
	}
	absent := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "absent"}}
	if _, err := types.of(t.Context(), absent); !apierrors.IsNotFound(err) {
		t.Errorf("of no Secret: %v, want NotFound", err)
	}
	nobody, err := cp.ConfigFor("nobody")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newSecretTypes(kubernetes.NewForConfigOrDie(nobody).CoreV1().RESTClient()).of(t.Context(), absent); !apierrors.IsForbidden(err) {
		t.Errorf("without permission: %v, want Forbidden", err)
	}
}

// R88: the local copy of Secrets holds who they are and nothing else, whether it is
// filled by LIST or WatchList and told by a watch or by polling, and hearing works as
// for any kind.
func TestSystemCopyOfSecrets(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Config{})
	watches := faultproxy.Match{Verbs: []string{"watch"}}
	for name, tc := range map[string]struct {
		reason string
		// start is there from the beginning, silence comes once the copy is filled.
		start, silence *faultproxy.Rule
		listed         bool
	}{
		"WatchList": {"the way it usually goes", nil, nil, false},
		"List":      {"an API server without WatchList", &faultproxy.Rule{Match: faultproxy.Match{Watch: faultproxy.OnlyWatchList}, Answer: &faultproxy.Answer{Code: 400}}, nil, true},
		"Polling":   {"no watch works", nil, &faultproxy.Rule{Match: watches, Freeze: faultproxy.FreezeStream}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			copyOfSecrets(t, cp, tc.start, tc.silence, tc.listed)
		})
	}
}

func copyOfSecrets(t *testing.T, cp *controlplane.ControlPlane, atStart, silence *faultproxy.Rule, listed bool) {
	namespace := cp.Namespace(t)
	admin := kubernetes.NewForConfigOrDie(cp.Config()).CoreV1().Secrets(namespace)
	create := func(s *corev1.Secret) *corev1.Secret {
		t.Helper()
		made, err := admin.Create(t.Context(), s, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	proxy, err := faultproxy.Start(faultproxy.Config{Upstream: cp.Config()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	if atStart != nil {
		proxy.Add(*atStart)
	}
	old := create(appliedByKubectl(t, markedSecret(namespace, "old", corev1.SecretTypeTLS)))
	// All that this process is sent, questions and audits included.
	var w wire
	through := proxy.ClientConfig(cp.Config())
	through.Wrap(w.around)
	hearing, err := informer.NewHearing(informer.HearingConfig{Config: rest.CopyConfig(through), ProbeAfter: 2 * time.Second, PollInterval: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	connection := informer.NewConnection(through)
	client := metadata.NewForConfigOrDie(connection.Config())
	resource := corev1.SchemeGroupVersion.WithResource("secrets")
	secrets, err := informer.New(informer.Config[*metav1.PartialObjectMetadata]{
		Resource: resource, Namespaces: []string{namespace}, Transform: TransformSecret, Hearing: hearing, Connection: connection,
		ListerWatcher: informer.ListWatch(client, client.Resource(resource).Namespace),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = secrets.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	// await waits until the copy is of these Secrets, or of none of that name.
	await := func(name string, want *corev1.Secret) {
		t.Helper()
		controlplane.Eventually(t, 40*time.Second, "the copy to follow", func() (bool, string) {
			object, exists, err := secrets.Indexer().GetByKey(namespace + "/" + name)
			s := secrets.Snapshot()
			seen := fmt.Sprintf("there is one: %t, %v; %s %s, %d lists, %d watches, %v", exists, err, s.State, s.Message, s.Lists, s.Watches, s.Events)
			if want == nil || !exists {
				return err == nil && exists == (want != nil), seen
			}
			return object.(*metav1.PartialObjectMetadata).ResourceVersion == want.ResourceVersion, seen
		})
	}
	await("old", old)
	if got := secrets.Snapshot().Lists > 0; got != listed {
		t.Errorf("listed: %t, want %t", got, listed)
	}
	if silence != nil {
		proxy.Add(*silence)
	}
	made := create(appliedByKubectl(t, markedSecret(namespace, "new", corev1.SecretTypeTLS)))
	await("new", made)
	made.Labels = map[string]string{"renewed": "yes"}
	if made, err = admin.Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	await("new", made)
	if err := admin.Delete(t.Context(), "old", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await("old", nil)
	want := informer.StateHearing
	if silence != nil {
		want = informer.StatePolling
	}
	controlplane.Eventually(t, 40*time.Second, "the state "+string(want), func() (bool, string) {
		s := secrets.Snapshot()
		return s.State == want, string(s.State) + " " + s.Message
	})

	kept := secrets.Indexer().List()
	data, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	if len(kept) != 1 || bytes.Contains(data, []byte(marker64)) || bytes.Contains(data, []byte("renewed")) {
		t.Errorf("kept is %s", data)
	}
	// What the metadata of Secrets that kubectl has applied cannot be kept from: see the
	// package's Caveats.
	if !w.carried() {
		t.Error("the annotation of a Secret that kubectl has applied is no longer sent with its metadata: the package's caveat is out of date")
	}
}
