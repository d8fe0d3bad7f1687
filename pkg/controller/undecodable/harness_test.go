package undecodable_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/steadwatch/steadwatch/pkg/controller/undecodable"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

var resource = schema.GroupVersionResource{Group: "platform.tejo.dev", Version: "v1alpha1", Resource: "webapps"}

const finalizer = "platform.tejo.dev/drain"

func key(name string) cache.ObjectName { return cache.NewObjectName("ns", name) }

// fake is an API server that holds objects nobody can decode, and the informer's
// records of them. It understands the patches that are sent here and no others.
type fake struct {
	mu       sync.Mutex
	objects  map[cache.ObjectName]*object
	records  map[cache.ObjectName]informer.Quarantined
	requests []string
	// answer, if set, is asked first; a nil Status lets the request through.
	answer func(method string, key cache.ObjectName) *metav1.Status
}

type object struct {
	uid             types.UID
	resourceVersion int
	generation      int64
	status          map[string]any // of a JSON object, or with key "" anything else
}

func newFake() *fake {
	return &fake{objects: map[cache.ObjectName]*object{}, records: map[cache.ObjectName]informer.Quarantined{}}
}

// bad creates an object with a bad field, as the API server and the informer see it.
func (f *fake) bad(name string, change ...func(*informer.Quarantined)) cache.ObjectName {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := key(name)
	f.objects[k] = &object{uid: types.UID("uid-" + name), resourceVersion: 1, generation: 1}
	f.records[k] = informer.Quarantined{
		Resource: resource, Key: k, UID: types.UID("uid-" + name), ResourceVersion: "1", Generation: 1,
		Fields: []informer.BadField{{Path: "spec.drainTimeout", Value: `"1"`, GoType: "*v1.Duration", Reason: "a unit is missing"}},
		Fix:    []string{"kubectl patch webapp " + name},
	}
	for _, c := range change {
		r := f.records[k]
		c(&r)
		f.records[k] = r
	}
	return k
}

// with changes an object and its record under the lock.
func (f *fake) with(k cache.ObjectName, change func(*object, *informer.Quarantined)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.records[k]
	change(f.objects[k], &r)
	f.records[k] = r
}

// catchUp is the event that brings the informer what was written last.
func (f *fake) catchUp(k cache.ObjectName) {
	f.with(k, func(o *object, r *informer.Quarantined) {
		r.ResourceVersion, r.Generation = strconv.Itoa(o.resourceVersion), o.generation
	})
}

func (f *fake) quarantined(k cache.ObjectName) (informer.Quarantined, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r, ok := f.records[k]
	return r, ok
}

// condition returns the live condition, in the form "False Undecodable".
func (f *fake) condition(k cache.ObjectName) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	conditions, _ := f.objects[k].status["conditions"].([]any)
	for _, c := range conditions {
		if c, _ := c.(map[string]any); c["type"] == "Decodable" {
			return fmt.Sprint(c["status"], " ", c["reason"])
		}
	}
	return ""
}

// sent returns the requests since the last call.
func (f *fake) sent() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := strings.Join(f.requests, ", ")
	f.requests = nil
	return all
}

// RoundTrip serves GET and PATCH of one object.
func (f *fake) RoundTrip(req *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	segments := strings.Split(strings.TrimPrefix(req.URL.Path, "/apis/platform.tejo.dev/v1alpha1/namespaces/ns/webapps/"), "/")
	k := key(segments[0])
	f.requests = append(f.requests, req.Method+" "+path.Join(segments...))
	if f.answer != nil {
		if status := f.answer(req.Method, k); status != nil {
			status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"} // or the client makes up its own
			return respond(req, int(status.Code), status)
		}
	}
	o := f.objects[k]
	if o == nil {
		return respond(req, http.StatusNotFound, metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
	}
	if req.Method == http.MethodPatch {
		if got := req.Header.Get("Content-Type"); got != string(types.JSONPatchType) || len(segments) != 2 || segments[1] != "status" {
			return nil, fmt.Errorf("patch of %v with %s", segments, got)
		}
		if err := o.patch(req.Body); err != nil {
			return nil, err
		}
	}
	var status any = o.status
	if other, ok := o.status[""]; ok {
		status = other
	}
	return respond(req, http.StatusOK, map[string]any{
		"metadata": map[string]any{"name": k.Name, "uid": o.uid, "resourceVersion": strconv.Itoa(o.resourceVersion), "generation": o.generation},
		"spec":     map[string]any{"drainTimeout": "1"},
		"status":   status,
	})
}

func (o *object) patch(body io.Reader) error {
	var operations []struct {
		Op, Path string
		Value    any
	}
	if err := json.NewDecoder(body).Decode(&operations); err != nil {
		return err
	}
	if first := operations[0]; first.Op != "test" || first.Path != "/metadata/uid" || first.Value != string(o.uid) {
		return fmt.Errorf("no test of the uid: %+v", first)
	}
	last := operations[len(operations)-1]
	conditions, _ := o.status["conditions"].([]any)
	switch {
	case last.Path == "/status" && o.status == nil:
		o.status = last.Value.(map[string]any)
	case last.Path == "/status/conditions" && o.status["conditions"] == nil:
		o.status["conditions"] = last.Value
	case last.Path == "/status/conditions/-":
		o.status["conditions"] = append(conditions, last.Value)
	case last.Op == "replace":
		n, err := strconv.Atoi(path.Base(last.Path))
		if err != nil {
			return err
		}
		conditions[n] = last.Value
	default:
		return fmt.Errorf("unexpected patch %+v of status %v", last, o.status)
	}
	o.resourceVersion++
	return nil
}

func respond(req *http.Request, code int, body any) (*http.Response, error) {
	data, err := json.Marshal(body)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(data))), Request: req}, err
}

// reporter makes a Reporter on f, as a process that has just started has it.
func (f *fake) reporter(t *testing.T, change ...func(*undecodable.Config)) (*undecodable.Reporter, *record.FakeRecorder) {
	t.Helper()
	gv := resource.GroupVersion()
	client, err := rest.RESTClientFor(&rest.Config{Host: "http://fake", APIPath: "/apis", Transport: f, QPS: -1,
		ContentConfig: rest.ContentConfig{GroupVersion: &gv, NegotiatedSerializer: scheme.Codecs.WithoutConversion()}})
	if err != nil {
		t.Fatal(err)
	}
	events := record.NewFakeRecorder(20_000)
	cfg := undecodable.Config{Resource: resource, Kind: "WebApp", Client: client, FieldManager: "test", Quarantined: f.quarantined, Recorder: events}
	for _, c := range change {
		c(&cfg)
	}
	r, err := undecodable.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r, events
}

// reasons drains the Events' types and reasons.
func reasons(events *record.FakeRecorder) string {
	var all []string
	for {
		select {
		case e := <-events.Events:
			all = append(all, strings.Join(strings.SplitN(e, " ", 3)[:2], " "))
		default:
			return strings.Join(all, ", ")
		}
	}
}
