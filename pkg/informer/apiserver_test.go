package informer_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// apiServer speaks list, watch and watch-list for ConfigMaps, so that tests go
// through a real typed client: fake clientsets switch WatchList off.
type apiServer struct {
	url string

	mu       sync.Mutex
	revision int
	objects  map[string]*corev1.ConfigMap
	history  []change
	news     chan struct{} // closed and replaced on every change
	cut      chan struct{} // closed and replaced to end all watches
	refuse   func(verb, namespace string) *metav1.Status
	requests []string
}

type change struct {
	revision int
	event    string
	object   *corev1.ConfigMap
}

func newAPIServer(t *testing.T) *apiServer {
	a := &apiServer{revision: 100, objects: map[string]*corev1.ConfigMap{}, news: make(chan struct{}), cut: make(chan struct{})}
	server := httptest.NewServer(a)
	a.url = server.URL
	t.Cleanup(func() {
		a.endWatches()
		server.Close()
	})
	return a
}

func (a *apiServer) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	clients, err := kubernetes.NewForConfig(&rest.Config{
		Host: a.url, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON, AcceptContentTypes: runtime.ContentTypeJSON},
	})
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

// put creates or updates namespace/name and returns what was stored.
func (a *apiServer) put(namespace, name string, data map[string]string) *corev1.ConfigMap {
	a.mu.Lock()
	defer a.mu.Unlock()
	key, event := namespace+"/"+name, "MODIFIED"
	a.revision++
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, ResourceVersion: strconv.Itoa(a.revision), UID: types.UID("uid-" + strconv.Itoa(a.revision)),
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "test", Operation: metav1.ManagedFieldsOperationApply}},
		},
		Data: data,
	}
	if before, ok := a.objects[key]; ok {
		cm.UID = before.UID
	} else {
		event = "ADDED"
	}
	a.objects[key] = cm
	a.changed(event, cm)
	return cm
}

// remove deletes namespace/name; watches are told only if tell is set.
func (a *apiServer) remove(namespace, name string, tell bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revision++
	gone := a.objects[namespace+"/"+name].DeepCopy()
	gone.ResourceVersion = strconv.Itoa(a.revision)
	delete(a.objects, namespace+"/"+name)
	if tell {
		a.changed("DELETED", gone)
	}
}

func (a *apiServer) changed(event string, cm *corev1.ConfigMap) {
	a.history = append(a.history, change{a.revision, event, cm})
	close(a.news)
	a.news = make(chan struct{})
}

func (a *apiServer) endWatches() {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.cut)
	a.cut = make(chan struct{})
}

// setRefuse decides which requests fail, by verb ("list", "watch" or
// "watchlist") and namespace ("" for all). Nil: none.
func (a *apiServer) setRefuse(refuse func(verb, namespace string) *metav1.Status) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.refuse = refuse
}

func (a *apiServer) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.requests)
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	namespace := ""
	if rest, ok := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/"); ok {
		namespace = strings.TrimSuffix(rest, "/configmaps")
	}
	query := r.URL.Query()
	verb := "list"
	if query.Get("watch") == "true" || query.Get("watch") == "1" {
		verb = "watch"
		if query.Get("sendInitialEvents") == "true" {
			verb = "watchlist"
		}
	}

	a.mu.Lock()
	a.requests = append(a.requests, verb+" "+r.URL.Path)
	var status *metav1.Status
	if a.refuse != nil {
		status = a.refuse(verb, namespace)
	}
	revision, cut := a.revision, a.cut
	var objects []corev1.ConfigMap
	for _, cm := range a.objects {
		if namespace == "" || cm.Namespace == namespace {
			objects = append(objects, *cm)
		}
	}
	a.mu.Unlock()

	w.Header().Set("Content-Type", "application/json")
	if status != nil {
		w.WriteHeader(int(status.Code))
		_ = json.NewEncoder(w).Encode(status)
		return
	}
	if verb == "list" {
		_ = json.NewEncoder(w).Encode(&corev1.ConfigMapList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"},
			ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(revision)}, Items: objects,
		})
		return
	}

	flush := w.(http.Flusher).Flush
	flush()
	send := func(event string, cm corev1.ConfigMap) {
		cm.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
		_ = json.NewEncoder(w).Encode(map[string]any{"type": event, "object": cm})
	}
	from := revision
	if verb == "watchlist" {
		for _, cm := range objects {
			send("ADDED", cm)
		}
		send("BOOKMARK", corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.Itoa(revision), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}})
	} else {
		from, _ = strconv.Atoi(query.Get("resourceVersion"))
	}
	for {
		flush()
		a.mu.Lock()
		news, history := a.news, a.history
		a.mu.Unlock()
		for _, c := range history {
			if c.revision > from && (namespace == "" || c.object.Namespace == namespace) {
				send(c.event, *c.object)
				from = c.revision
			}
		}
		flush()
		select {
		case <-news:
		case <-cut:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func forbidden(verb, _ string) *metav1.Status {
	if verb == "watchlist" {
		verb = "watch"
	}
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Code: http.StatusForbidden,
		Message: fmt.Sprintf("configmaps is forbidden: User %q cannot %s resource", "test", verb),
	}
}

func notFound(string, string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound,
		Message: "the server could not find the requested resource",
	}
}

// withoutWatchList refuses as an API server that does not know WatchList.
func withoutWatchList(verb, _ string) *metav1.Status {
	if verb != "watchlist" {
		return nil
	}
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
		Message: "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled",
	}
}

// patience bounds every wait that has no bound of its own to show. Machines that run all
// packages' tests at once are slow.
const patience = time.Minute

// eventually waits until ok; state describes what it last saw.
func eventually(t *testing.T, within time.Duration, what string, check func() (ok bool, state any)) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, state := check()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %s: %s; last state: %+v", within, what, state)
		}
	}
}
