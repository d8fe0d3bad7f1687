package child_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
)

type configMaps = child.Kind[*corev1.ConfigMap, *corev1ac.ConfigMapApplyConfiguration]

var ownerKind = schema.GroupKind{Group: "example.com", Kind: "Owner"}

func owner() metav1.Object {
	return &metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-1"}
}

// object is a ConfigMap of owner's name, whose controller is what by names: "" nobody.
func object(uid, resourceVersion string, by *metav1.OwnerReference, change ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: types.UID(uid), ResourceVersion: resourceVersion}}
	if by != nil {
		c.OwnerReferences = []metav1.OwnerReference{*by}
	}
	for _, f := range change {
		f(c)
	}
	return c
}

func controlledBy(apiVersion, kind, name, uid string) *metav1.OwnerReference {
	yes := true
	return &metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid), Controller: &yes}
}

var ours = controlledBy("example.com/v1", "Owner", "web", "uid-1")

func deleting(c *corev1.ConfigMap) {
	at := metav1.Now()
	c.DeletionTimestamp = &at
}

// server answers GETs from live, one after the other and the last one for ever, and
// DELETEs likewise from deletes; applies fail with applyErr or return applied.
type server struct {
	live     []*corev1.ConfigMap
	getErr   error
	deletes  []error
	applied  *corev1.ConfigMap
	applyErr error

	gets  int
	calls []string
}

func (s *server) Get(context.Context, string, metav1.GetOptions) (*corev1.ConfigMap, error) {
	s.calls = append(s.calls, "GET")
	return s.get()
}

func (s *server) metadata(context.Context, schema.GroupVersionResource, cache.ObjectName) (*metav1.PartialObjectMetadata, error) {
	s.calls = append(s.calls, "GET metadata")
	c, err := s.get()
	if err != nil {
		return nil, err
	}
	return &metav1.PartialObjectMetadata{ObjectMeta: c.ObjectMeta}, nil
}

func (s *server) get() (*corev1.ConfigMap, error) {
	s.gets++
	if s.getErr != nil {
		return nil, s.getErr
	}
	if len(s.live) == 0 || s.live[min(s.gets, len(s.live))-1] == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), "web")
	}
	return s.live[min(s.gets, len(s.live))-1], nil
}

func (s *server) Apply(_ context.Context, config *corev1ac.ConfigMapApplyConfiguration, o metav1.ApplyOptions) (*corev1.ConfigMap, error) {
	uid := "any"
	if config.UID != nil {
		uid = string(*config.UID)
	}
	s.calls = append(s.calls, fmt.Sprintf("APPLY uid=%s manager=%s force=%t hash=%d", uid, o.FieldManager, o.Force, len(config.Annotations["hash"])))
	return s.applied, s.applyErr
}

func (s *server) Delete(_ context.Context, _ string, o metav1.DeleteOptions) error {
	s.calls = append(s.calls, fmt.Sprintf("DELETE uid=%s resourceVersion=%s", *o.Preconditions.UID, *o.Preconditions.ResourceVersion))
	return s.deletes[min(s.count("DELETE"), len(s.deletes))-1]
}

func (s *server) count(verb string) (n int) {
	for _, c := range s.calls {
		if len(c) >= len(verb) && c[:len(verb)] == verb {
			n++
		}
	}
	return n
}

// kind has cached in its cache, nil for nothing, and reports writes as calls of s.
func kind(s *server, cached *corev1.ConfigMap) (configMaps, *child.Applier) {
	note := func(verb string) func(context.Context, metav1.Object, schema.GroupVersionResource, metav1.Object) {
		return func(_ context.Context, owner metav1.Object, resource schema.GroupVersionResource, object metav1.Object) {
			s.calls = append(s.calls, fmt.Sprintf("%s %s/%s for %s", verb, resource.Resource, object.GetUID(), owner.GetName()))
		}
	}
	return configMaps{
		Name: "ConfigMap", Resource: corev1.SchemeGroupVersion.WithResource("configmaps"),
		Cached: func(namespace, name string) (*corev1.ConfigMap, error) {
			if cached == nil {
				return nil, apierrors.NewNotFound(corev1.Resource("configmaps"), name)
			}
			return cached, nil
		},
		Client: func(string) child.Client[*corev1.ConfigMap, *corev1ac.ConfigMapApplyConfiguration] { return s },
	}, &child.Applier{FieldManager: "test", Annotation: "hash", Owner: ownerKind, Wrote: note("wrote"), Deleted: note("deleted"), Metadata: s.metadata}
}

func TestFind(t *testing.T) {
	cases := map[string]struct {
		reason string
		cached *corev1.ConfigMap
		live   bool
		server server
		want   string
		calls  []string
	}{
		"Cached":    {"no request", object("a", "1", ours), false, server{}, "a", nil},
		"CacheLags": {"the API server is asked before a child is made", nil, false, server{live: []*corev1.ConfigMap{object("a", "1", ours)}}, "a", []string{"GET"}},
		"None":      {"there is none", nil, false, server{}, "none", []string{"GET"}},
		"Live":      {"the cache does not count", object("old", "1", ours), true, server{live: []*corev1.ConfigMap{object("a", "2", ours)}}, "a", []string{"GET"}},
		"LiveNone":  {"and it is asked once", object("old", "1", ours), true, server{}, "none", []string{"GET"}},
		"Unowned": {"never taken over", object("a", "1", nil), false, server{},
			`ConfigMap "web" is controlled by nobody and not by this Owner: delete or rename it, or choose another name for the Owner`, nil},
		"Foreign": {"neither", object("a", "1", controlledBy("apps/v1", "Helm", "x", "uid-x")), false, server{},
			`ConfigMap "web" is controlled by Helm "x" and not by this Owner: delete or rename it, or choose another name for the Owner`, nil},
		"SameKindOfOtherGroup": {"is foreign", object("a", "1", controlledBy("other.com/v1", "Owner", "web", "uid-x")), false, server{},
			`ConfigMap "web" is controlled by Owner "web" and not by this Owner: delete or rename it, or choose another name for the Owner`, nil},
		"Earlier": {"in whatever version", object("a", "1", controlledBy("example.com/v1beta1", "Owner", "web", "uid-0")), false, server{},
			`wait: WaitingForGarbageCollection`, nil},
		"Terminating": {"made anew when it is gone", object("a", "1", ours, deleting), false, server{}, `wait: ChildTerminating`, nil},
		"Error":       {"what the server says", nil, false, server{getErr: errors.New("no")}, `read ConfigMap "web": no`, []string{"GET"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			k, applier := kind(&tc.server, tc.cached)
			found, err := child.Find(t.Context(), applier, k, owner(), tc.live)
			var wait child.WaitError
			got := "none"
			switch {
			case errors.As(err, &wait):
				got = "wait: " + wait.Reason
			case err != nil:
				got = err.Error()
			case found != nil:
				got = string(found.UID)
			}
			if got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
			if diff := cmp.Diff(tc.calls, tc.server.calls); diff != "" {
				t.Errorf("%s: requests (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestEnsure(t *testing.T) {
	desired := func() *corev1ac.ConfigMapApplyConfiguration {
		return corev1ac.ConfigMap("web", "shop").WithData(map[string]string{"a": "1"})
	}
	var hash string
	probe := &hashing{}
	k, applier := kind(&server{}, nil)
	k.Client = func(string) child.Client[*corev1.ConfigMap, *corev1ac.ConfigMapApplyConfiguration] { return probe }
	if _, err := child.Ensure(t.Context(), applier, k, owner(), nil, desired(), nil); err != nil {
		t.Fatal(err)
	}
	hash = probe.hash
	as := func(change ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
		c := object("a", "1", ours, change...)
		c.Annotations = map[string]string{"hash": hash}
		if c.Data == nil {
			c.Data = map[string]string{"a": "1", "b": "somebody's"}
		}
		return c
	}
	replaced := apierrors.NewInvalid(schema.GroupKind{Kind: "ConfigMap"}, "web", nil)
	replaced.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeFieldValueInvalid, Field: "metadata.uid"}}
	edited := func(c *corev1.ConfigMap) { c.Data = map[string]string{"a": "2"} }
	cases := map[string]struct {
		reason  string
		current *corev1.ConfigMap
		before  error
		server  server
		want    controller.Class
		calls   []string
	}{
		"New": {"without a uid and without force: nobody else's becomes ours", nil, nil, server{applied: as()}, controller.ClassDone,
			[]string{"APPLY uid=any manager=test force=false hash=32", "wrote configmaps/a for web"}},
		"Same": {"nothing is sent", as(), errors.New("asked"), server{}, controller.ClassDone, nil},
		"Edited": {"set back, in this very object", as(edited), nil, server{applied: as()}, controller.ClassDone,
			[]string{"APPLY uid=a manager=test force=true hash=32", "wrote configmaps/a for web"}},
		"FieldDropped": {"only the hash shows it", object("a", "1", ours, func(c *corev1.ConfigMap) {
			c.Annotations, c.Data = map[string]string{"hash": "of more"}, map[string]string{"a": "1", "dropped": "x"}
		}), nil, server{applied: as()}, controller.ClassDone, []string{"APPLY uid=a manager=test force=true hash=32", "wrote configmaps/a for web"}},
		"Before":   {"what has to come first and fails", as(edited), errors.New("no"), server{}, controller.ClassRetry, nil},
		"Replaced": {"seen at the next pass", as(edited), nil, server{applyErr: replaced}, controller.ClassStale, []string{"APPLY uid=a manager=test force=true hash=32"}},
		"Refused":  {"the server's word", as(edited), nil, server{applyErr: apierrors.NewInvalid(schema.GroupKind{}, "web", nil)}, controller.ClassInvalid, []string{"APPLY uid=a manager=test force=true hash=32"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			k, applier := kind(&tc.server, nil)
			got, err := child.Ensure(t.Context(), applier, k, owner(), tc.current, desired(),
				func(context.Context, *corev1.ConfigMap) error { return tc.before })
			if class := controller.Classify(err); class != tc.want {
				t.Errorf("%s: got %s (%v), want %s", tc.reason, class, err, tc.want)
			}
			if want := tc.current; err != nil && got != want {
				t.Errorf("%s: with an error got %v, want what was there", tc.reason, got)
			}
			if diff := cmp.Diff(tc.calls, tc.server.calls); diff != "" {
				t.Errorf("%s: calls (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// hashing notes the hash of what is applied.
type hashing struct {
	server
	hash string
}

func (h *hashing) Apply(_ context.Context, config *corev1ac.ConfigMapApplyConfiguration, _ metav1.ApplyOptions) (*corev1.ConfigMap, error) {
	h.hash = config.Annotations["hash"]
	return object("a", "1", ours), nil
}

func TestWithdraw(t *testing.T) {
	resource := corev1.Resource("configmaps")
	conflict, notFound := apierrors.NewConflict(resource, "web", errors.New("changed")), apierrors.NewNotFound(resource, "web")
	foreign := controlledBy("apps/v1", "Helm", "x", "uid-x")
	cases := map[string]struct {
		reason string
		cached *corev1.ConfigMap
		server server
		want   controller.Class
		calls  []string
	}{
		"Ours": {"deleted as it was when its owner was read, not as it is cached", object("a", "1", ours),
			server{live: []*corev1.ConfigMap{object("a", "2", ours)}, deletes: []error{nil}}, controller.ClassDone,
			[]string{"GET metadata", "DELETE uid=a resourceVersion=2", "deleted configmaps/a for web"}},
		"None":    {"a pass with nothing to withdraw asks nobody", nil, server{}, controller.ClassDone, nil},
		"Foreign": {"not ours to delete", object("a", "1", foreign), server{}, controller.ClassDone, nil},
		"Earlier": {"that is the garbage collector's", object("a", "1", controlledBy("example.com/v1", "Owner", "web", "uid-0")), server{}, controller.ClassDone, nil},
		"GivenAway": {"the API server's word counts", object("a", "1", ours),
			server{live: []*corev1.ConfigMap{object("a", "2", foreign)}}, controller.ClassDone, []string{"GET metadata"}},
		"GoneAlready": {"the event is on its way", object("a", "1", ours), server{}, controller.ClassDone, []string{"GET metadata"}},
		"Deleting": {"asked for once", object("a", "1", ours), server{live: []*corev1.ConfigMap{object("a", "2", ours, deleting)}},
			controller.ClassDone, []string{"GET metadata"}},
		"GoneBetween": {"as good", object("a", "1", ours), server{live: []*corev1.ConfigMap{object("a", "2", ours)}, deletes: []error{notFound}},
			controller.ClassDone, []string{"GET metadata", "DELETE uid=a resourceVersion=2"}},
		"StatusWritten": {"a gateway reports all the time", object("a", "1", ours),
			server{live: []*corev1.ConfigMap{object("a", "2", ours), object("a", "3", ours)}, deletes: []error{conflict, nil}}, controller.ClassDone,
			[]string{"GET metadata", "DELETE uid=a resourceVersion=2", "GET metadata", "DELETE uid=a resourceVersion=3", "deleted configmaps/a for web"}},
		"GivenAwayBetween": {"the precondition has kept it", object("a", "1", ours),
			server{live: []*corev1.ConfigMap{object("a", "2", ours), object("a", "3", foreign)}, deletes: []error{conflict}}, controller.ClassDone,
			[]string{"GET metadata", "DELETE uid=a resourceVersion=2", "GET metadata"}},
		"Endless": {"the next pass goes on", object("a", "1", ours),
			server{live: []*corev1.ConfigMap{object("a", "2", ours)}, deletes: []error{conflict}}, controller.ClassConflict,
			[]string{"GET metadata", "DELETE uid=a resourceVersion=2", "GET metadata", "DELETE uid=a resourceVersion=2", "GET metadata", "DELETE uid=a resourceVersion=2",
				"GET metadata", "DELETE uid=a resourceVersion=2", "GET metadata", "DELETE uid=a resourceVersion=2"}},
		"Refused": {"the server's word", object("a", "1", ours),
			server{live: []*corev1.ConfigMap{object("a", "2", ours)}, deletes: []error{apierrors.NewForbidden(resource, "web", errors.New("no"))}},
			controller.ClassRetry, []string{"GET metadata", "DELETE uid=a resourceVersion=2"}},
		"Unreadable": {"nothing is deleted unseen", object("a", "1", ours), server{getErr: errors.New("no")}, controller.ClassRetry, []string{"GET metadata"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			k, applier := kind(&tc.server, tc.cached)
			err := child.Withdraw(t.Context(), applier, k, owner())
			if class := controller.Classify(err); class != tc.want {
				t.Errorf("%s: got %s (%v), want %s", tc.reason, class, err, tc.want)
			}
			if diff := cmp.Diff(tc.calls, tc.server.calls); diff != "" {
				t.Errorf("%s: calls (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// Of a child that cannot be decoded there is nothing but metadata, and that is enough.
func TestWithdrawWhatCannotBeDecoded(t *testing.T) {
	withdrawn := []string{"GET metadata", "DELETE uid=a resourceVersion=2", "deleted configmaps/a for web"}
	for name, tc := range map[string]struct {
		reason           string
		cached, setAside *corev1.ConfigMap
		calls            []string
	}{
		"NeverCached": {"set aside since the process started", nil, object("a", "2", ours), withdrawn},
		"Cached":      {"its last good version is in the cache", object("a", "1", ours), object("a", "2", ours), withdrawn},
		"Replaced":    {"what is in the cache has gone", object("z", "1", controlledBy("apps/v1", "Helm", "x", "uid-x")), object("a", "2", ours), withdrawn},
		"Foreign":     {"not ours to delete", object("a", "1", ours), object("b", "2", controlledBy("apps/v1", "Helm", "x", "uid-x")), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := server{live: []*corev1.ConfigMap{tc.setAside}, deletes: []error{nil}}
			k, applier := kind(&s, tc.cached)
			k.Undecodable = func(cache.ObjectName) metav1.Object { return tc.setAside }
			if err := child.Withdraw(t.Context(), applier, k, owner()); err != nil {
				t.Errorf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.calls, s.calls); diff != "" {
				t.Errorf("%s: calls (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// The place of a child that is taken is nothing to retry for; what else went wrong in
// the same pass may be.
func TestNotOwnedIsTerminalByItself(t *testing.T) {
	k, applier := kind(&server{}, object("a", "1", nil))
	_, err := child.Find(t.Context(), applier, k, owner(), false)
	if class := controller.Classify(err); class != controller.ClassTerminal {
		t.Errorf("got %s (%v), want %s", class, err, controller.ClassTerminal)
	}
	both := errors.Join(apierrors.NewInternalError(errors.New("no")), err)
	if class := controller.Classify(both); class != controller.ClassRetry || !errors.As(both, new(child.NotOwnedError)) {
		t.Errorf("beside an error of the API server: got %s (%v), want %s", class, both, controller.ClassRetry)
	}
}
