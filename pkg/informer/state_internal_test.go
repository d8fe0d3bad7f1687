package informer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"
)

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

func TestClassify(t *testing.T) {
	refused := &url.Error{Op: "Get", URL: "https://10.0.0.1", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}}
	webhook := `conversion webhook for example.com/v1, Kind=Widget failed: Post "https://x.svc": connect: connection refused`
	for name, test := range map[string]struct {
		reason string
		err    error
		want   Reason
	}{
		"forbidden":       {"RBAC", apierrors.NewForbidden(widgets.GroupResource(), "", errors.New("no")), Forbidden},
		"unauthorized":    {"token expired", apierrors.NewUnauthorized("Unauthorized"), Unauthorized},
		"not found":       {"CRD missing", apierrors.NewGenericServerResponse(404, "get", widgets.GroupResource(), "", "", 0, true), NotFound},
		"throttled":       {"APF", apierrors.NewTooManyRequests("later", 1), Throttled},
		"expired":         {"compacted", apierrors.NewResourceExpired("too old"), Expired},
		"gone":            {"as older servers say it", &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusGone, Reason: metav1.StatusReasonGone}}, Expired},
		"webhook down":    {"R17: has no status reason of its own", apierrors.NewInternalError(errors.New(webhook)), Conversion},
		"unknown version": {"R16", apierrors.NewInternalError(errors.New("request to convert CR from an invalid group/version: x/v2beta2")), Conversion},
		"etcd down":       {"500", apierrors.NewInternalError(errors.New("etcdserver: no leader")), ServerError},
		"unavailable":     {"503", apierrors.NewServiceUnavailable("starting"), ServerError},
		"bad request":     {"a 4xx without a class", apierrors.NewBadRequest("what"), Other},
		"refused":         {"nobody listens", refused, Unreachable},
		"no such host":    {"DNS", &url.Error{Op: "Get", URL: "https://x", Err: &net.DNSError{Err: "no such host"}}, Unreachable},
		"cut off":         {"EOF in the middle", &url.Error{Op: "Get", URL: "https://x", Err: errors.New("EOF")}, Unreachable},
		"undecodable":     {"not the server's fault", errors.New("json: cannot unmarshal string"), Other},
	} {
		t.Run(name, func(t *testing.T) {
			if got := classify(fmt.Errorf("failed to list *v1.Widget: %w", test.err)); got != test.want {
				t.Errorf("%s: got %q, want %q", test.reason, got, test.want)
			}
			if remedy(test.want, widgets, "") == "" {
				t.Errorf("no remedy for %q", test.want)
			}
		})
	}
}

func TestWordsAreTheServersAndBounded(t *testing.T) {
	err := fmt.Errorf("failed to list *v1.Widget: %w", apierrors.NewServiceUnavailable("etcd is on holiday"))
	if got := words(err); got != "etcd is on holiday" {
		t.Errorf("got %q", got)
	}
	for _, pad := range []string{"", "x", "xx"} {
		long := words(errors.New(pad + strings.Repeat("€", maxMessage)))
		if len(long) > maxMessage+len("…") || !utf8.ValidString(long) || !strings.HasSuffix(long, "€…") {
			t.Errorf("%d bytes, valid %v: %q", len(long), utf8.ValidString(long), long[len(long)-8:])
		}
	}
}

// What is refused is named at once, again every 10 min while it lasts, and
// once when it is over; flapping is not news.
func TestConditionSpeaksOnce(t *testing.T) {
	no := apierrors.NewForbidden(widgets.GroupResource(), "", errors.New("no"))
	type step struct {
		after  time.Duration
		err    error // nil: success
		failed int   // lines so far
		healed int
	}
	for name, test := range map[string]struct {
		reason string
		steps  []step
	}{
		"lasts":                    {"a retry a minute for 20 min", append(append([]step{{0, no, 1, 0}}, repeat(9, step{time.Minute, no, 1, 0})...), append([]step{{time.Minute, no, 2, 0}}, repeat(9, step{time.Minute, no, 2, 0})...)...)},
		"heals":                    {"once", []step{{0, no, 1, 0}, {time.Minute, nil, 1, 1}, {time.Minute, nil, 1, 1}}},
		"again after a good while": {"a new outage is named at once", []step{{0, no, 1, 0}, {time.Second, nil, 1, 1}, {2 * time.Minute, no, 2, 1}, {time.Second, nil, 2, 2}}},
		"flaps":                    {"one outage", append([]step{{0, no, 1, 0}, {time.Second, nil, 1, 1}}, repeat(5, step{time.Second, no, 1, 1}, step{time.Second, nil, 1, 1})...)},
		"other reason":             {"is news, but going back and forth is not", []step{{0, no, 1, 0}, {time.Second, apierrors.NewUnauthorized(""), 2, 0}, {time.Second, no, 2, 0}, {time.Second, apierrors.NewUnauthorized(""), 2, 0}, {time.Second, nil, 2, 1}}},
		"expired once":             {"normal: a watch from too old a revision, then a relist", []step{{0, nil, 0, 0}, {time.Hour, apierrors.NewResourceExpired(""), 0, 0}, {time.Second, nil, 0, 0}}},
		"expired for good":         {"not normal", []step{{0, apierrors.NewResourceExpired(""), 0, 0}, {time.Second, apierrors.NewResourceExpired(""), 1, 0}, {time.Second, nil, 1, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
				log := logger.GetSink().(ktesting.Underlier).GetBuffer()
				c := newCondition(widgets, "")
				c.started(logger)
				for n, s := range test.steps {
					time.Sleep(s.after)
					if s.err != nil {
						c.failed(s.err)
					} else {
						c.succeeded()
					}
					got := [2]int{strings.Count(log.String(), "Cannot list or watch"), strings.Count(log.String(), "Can list and watch again")}
					if diff := cmp.Diff([2]int{s.failed, s.healed}, got); diff != "" {
						t.Fatalf("%s: step %d: lines (-want +got):\n%s", test.reason, n, diff)
					}
				}
			})
		})
	}
}

// A kind that may be missing is no error while it is, and is not repeated. That it is
// forbidden is no less one than for others.
func TestConditionOfAnOptionalKind(t *testing.T) {
	missing := apierrors.NewGenericServerResponse(404, "get", widgets.GroupResource(), "", "", 0, true)
	no := apierrors.NewForbidden(widgets.GroupResource(), "", errors.New("no"))
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
		log := logger.GetSink().(ktesting.Underlier).GetBuffer()
		c := newCondition(widgets, "")
		c.optional = true
		c.started(logger)
		type lines struct{ absent, refused, back int }
		for n, s := range []struct {
			for_ time.Duration
			err  error // nil: success
			want lines
		}{
			{2 * time.Hour, missing, lines{1, 0, 0}},
			{time.Minute, nil, lines{1, 0, 1}},
			{2 * time.Hour, missing, lines{2, 0, 1}},
			{15 * time.Minute, no, lines{2, 2, 1}},
			{2 * time.Hour, missing, lines{2, 2, 1}},
		} {
			for end := time.Now().Add(s.for_); time.Now().Before(end); time.Sleep(30 * time.Second) {
				if s.err != nil {
					c.failed(s.err)
				} else {
					c.succeeded()
				}
			}
			got := lines{strings.Count(log.String(), "Kind is not served"), strings.Count(log.String(), "Cannot list or watch"), strings.Count(log.String(), "Can list and watch again")}
			if got != s.want {
				t.Fatalf("step %d: lines %+v, want %+v:\n%s", n, got, s.want, log.String())
			}
		}
	})
}

func repeat[E any](n int, steps ...E) (all []E) {
	for range n {
		all = append(all, steps...)
	}
	return all
}

// writeCounter counts what a transform writes.
type writeCounter struct {
	corev1.ConfigMap
	writes int
}

func (w *writeCounter) SetManagedFields(m []metav1.ManagedFieldsEntry) {
	w.writes++
	w.ConfigMap.SetManagedFields(m)
}

// An object that is in the store already, and being read, goes through the
// transform again on a relist: writing to it, even nil over nil, is a race.
func TestTransformWritesOnlyWhereThereIsSomethingToDrop(t *testing.T) {
	o := &writeCounter{}
	o.ConfigMap.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
	for range 3 {
		if out, err := stripManagedFields(o); err != nil || out != any(o) {
			t.Fatalf("got %v, %v", out, err)
		}
	}
	if o.ManagedFields != nil || o.writes != 1 {
		t.Errorf("managedFields %v after %d writes", o.ManagedFields, o.writes)
	}
	tombstone := cache.DeletedFinalStateUnknown{Key: "a/b"}
	if out, err := stripManagedFields(tombstone); err != nil || out != any(tombstone) {
		t.Errorf("tombstone: %v, %v", out, err)
	}
}

// The same, as the race detector sees it.
func TestTransformDoesNotRaceWithReaders(t *testing.T) {
	cm := &corev1.ConfigMap{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil {
			n += len(cm.ManagedFields)
		}
		done <- n
	}()
	for range 1000 {
		if _, err := stripManagedFields(cm); err != nil {
			t.Error(err)
		}
	}
	cancel()
	<-done
}

// A transform that panics must not end the process, nor lose the object.
func TestTransformThatPanicsKeepsTheObject(t *testing.T) {
	c := newContainment("configmaps")
	f := transform(c, false, func(cm *corev1.ConfigMap) *corev1.ConfigMap {
		if cm.Name == "bad" {
			panic("no")
		}
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "small"}}
	})
	bad := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bad", ManagedFields: []metav1.ManagedFieldsEntry{{}}}}
	if out, err := f(bad); err != nil || out != any(bad) || bad.ManagedFields != nil {
		t.Errorf("got %v, %v", out, err)
	}
	if out, err := f(&corev1.ConfigMap{}); err != nil || out.(*corev1.ConfigMap).Name != "small" {
		t.Errorf("got %v, %v", out, err)
	}
	if c.panics() != 1 {
		t.Errorf("%d panics counted, want 1", c.panics())
	}
}
