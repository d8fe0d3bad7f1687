package informer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var errConversion = apierrors.NewInternalError(errors.New(`conversion webhook for test.steadwatch.dev/v1, Kind=Gadget failed: no`))

// badPages serves n objects by pages and fails, with err, those that hold one of
// the bad ones.
type badPages struct {
	n        int
	bad      map[int]bool
	err      *apierrors.StatusError
	health   func(request int) *apierrors.StatusError // nil: well
	requests int
}

func (b *badPages) RoundTrip(r *http.Request) (*http.Response, error) {
	b.requests++
	query := r.URL.Query()
	from, _ := strconv.Atoi(query.Get("continue"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	to := min(from+limit, b.n)
	var failure *apierrors.StatusError
	if b.health != nil {
		failure = b.health(b.requests)
	}
	page := &metav1.PartialObjectMetadataList{}
	for i := from; i < to; i++ {
		if b.bad[i] && failure == nil {
			failure = b.err
		}
		page.Items = append(page.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("g%05d", i)}})
	}
	if to < b.n {
		page.Continue = strconv.Itoa(to)
	}
	code, body := http.StatusOK, any(page)
	if failure != nil {
		status := failure.ErrStatus
		status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		code, body = int(status.Code), status
	}
	data, err := json.Marshal(body)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(data)), Request: r}, err
}

func (b *badPages) client(t *testing.T) rest.Interface {
	t.Helper()
	version := gadgetVersion
	c, err := rest.RESTClientForConfigAndClient(&rest.Config{
		Host: "https://server.invalid", APIPath: "/apis", QPS: -1,
		ContentConfig: rest.ContentConfig{GroupVersion: &version, NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	}, &http.Client{Transport: b})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWalkFindsWhereTheServerFails(t *testing.T) {
	sick := func(from int, err *apierrors.StatusError) func(int) *apierrors.StatusError {
		return func(request int) *apierrors.StatusError {
			if request >= from {
				return err
			}
			return nil
		}
	}
	leaderless := apierrors.NewInternalError(errors.New("etcdserver: no leader"))
	undecodable := apierrors.NewInternalError(errors.New("object not decodable"))
	for name, test := range map[string]struct {
		reason   string
		server   badPages
		want     string
		fails    bool
		requests int // at most
	}{
		"middle":        {"R17: bisected", badPages{n: 10_000, bad: map[int]bool{7777: true}, err: errConversion}, "after ns/g07776 ", false, 16 + 20},
		"last":          {"alone on its page", badPages{n: 501, bad: map[int]bool{500: true}, err: errConversion}, "after ns/g00499 ", false, 14},
		"first":         {"a conversion speaks of an object for certain", badPages{n: 10, bad: map[int]bool{0: true}, err: errConversion}, "the first object", false, 12},
		"two":           {"the first of them", badPages{n: 1000, bad: map[int]bool{20: true, 30: true}, err: errConversion}, "after ns/g00019 ", false, 30},
		"no class":      {"a server that says no more than 500", badPages{n: 1000, bad: map[int]bool{20: true}, err: undecodable}, "after ns/g00019 ", false, 30},
		"well":          {"over before it was looked for", badPages{n: 1000}, "", false, 2},
		"empty":         {"", badPages{}, "", false, 1},
		"no leader":     {"nothing can be read: no object's fault", badPages{n: 1000, health: sick(1, leaderless)}, "", true, 12},
		"leader lost":   {"what was read before cannot be read either", badPages{n: 1000, health: sick(2, leaderless)}, "", true, 14},
		"forbidden":     {"says nothing about objects", badPages{n: 1000, health: sick(2, apierrors.NewForbidden(widgets.GroupResource(), "", nil))}, "", true, 2},
		"throttled":     {"not tried again at once", badPages{n: 1000, health: sick(2, apierrors.NewTooManyRequests("later", 1))}, "", true, 2},
		"a great many":  {"bounded", badPages{n: 1_000_000, bad: map[int]bool{999_999: true}, err: errConversion}, "", true, walkRequests},
		"largest walks": {"what the bound allows", badPages{n: 115_000, bad: map[int]bool{114_999: true}, err: errConversion}, "after ns/g114998 ", false, walkRequests},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				got, err := boundTo(t, test.server.client(t)).walk(t.Context())
				if (err != nil) != test.fails || !strings.Contains(got, test.want) || test.want == "" && got != "" {
					t.Errorf("%s: %q, %v; want %q, fails %v", test.reason, got, err, test.want, test.fails)
				}
				if test.server.requests > test.requests {
					t.Errorf("%s: %d requests, at most %d wanted", test.reason, test.server.requests, test.requests)
				}
				if took := time.Since(began); took > walkFor || took < time.Duration(test.server.requests-2)*walkPause {
					t.Errorf("%s: %d requests in %s", test.reason, test.server.requests, took)
				}
			})
		})
	}
}

// The names come from the etcd keys in the causes, whatever the prefix is.
func TestSuspectsAreNamedByTheServer(t *testing.T) {
	corrupt := func(fields ...string) error {
		status := metav1.Status{Code: 500, Reason: metav1.StatusReasonStoreReadError, Details: &metav1.StatusDetails{}}
		for _, f := range fields {
			status.Details.Causes = append(status.Details.Causes, metav1.StatusCause{Field: f})
		}
		return fmt.Errorf("failed to list *v1.Widget: %w", &apierrors.StatusError{ErrStatus: status})
	}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"one":            {corrupt("/registry/example.com/widgets/ns/a"), "ns/a"},
		"cluster-scoped": {corrupt("/registry/example.com/widgets/a"), "a"},
		"other prefix":   {corrupt("/some/where/example.com/widgets/ns/a"), "ns/a"},
		"built-in":       {corrupt("/registry/pods/ns/a"), "/registry/pods/ns/a"},
		"several":        {corrupt("/registry/example.com/widgets/ns/a", "", "/registry/example.com/widgets/ns/b"), "ns/a, ns/b"},
		"many":           {corrupt("/a", "/b", "/c", "/d", "/e"), "/a, /b, /c and others"},
		"no details":     {&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonStoreReadError}}, ""},
		"other reason":   {errConversion, ""},
		"in words alone": {apierrors.NewTooManyRequests("storage is (re)initializing: StorageError: corrupt object, Code: 7, Key: /registry/example.com/widgets/ns/a, ResourceVersion: 0", 1), "ns/a"},
		"no status":      {errors.New("EOF"), ""},
	} {
		if got := suspects(test.err, widgets.GroupResource()); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if got := classify(apierrors.NewTooManyRequests("StorageError: corrupt object, Code: 7", 1)); got != Corrupt {
		t.Errorf("a 429 with these words is classified as %q", got)
	}
	if got := classify(apierrors.NewInternalError(errors.New("StorageError: corrupt object, Code: 7, Key: /k, ResourceVersion: 0: conversion webhook for x failed"))); got != Conversion {
		t.Errorf("R17: a webhook's refusal is classified as %q: nothing is wrong in etcd", got)
	}
	if got := classify(corrupt("/registry/example.com/widgets/ns/a")); got != Corrupt {
		t.Errorf("classified as %q", got)
	}
}

// The list is walked from the second failure on, once in walkAgain while it lasts,
// never for what is no object's fault, and what was found goes with the refusal.
func TestWalksAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &countingWalker{found: ""}
		l := newListWatch(w, newCondition(gadgetResource, ""))
		l.condition.started(logr.Discard())
		fail := func(err error) {
			l.watchFailed(t.Context(), nil, err)
			synctest.Wait()
		}
		for range 5 {
			fail(apierrors.NewServiceUnavailable("starting"))
		}
		fail(errConversion)
		if w.walks != 0 {
			t.Errorf("%d walks after the first failure of the kind", w.walks)
		}
		for began := time.Now(); time.Since(began) < walkAgain-time.Minute; time.Sleep(30 * time.Second) {
			fail(errConversion)
		}
		if w.walks != 1 {
			t.Errorf("%d walks within %s, want 1", w.walks, walkAgain)
		}
		w.found = "the object after ns/a"
		time.Sleep(2 * time.Minute)
		fail(errConversion)
		for range 100 {
			time.Sleep(time.Minute)
			fail(errConversion)
		}
		s := Snapshot{}
		l.condition.describe(&s, false)
		if w.walks != 2 || s.Suspect != w.found || s.Reason != Conversion {
			t.Errorf("%d walks, want 2; %+v", w.walks, s)
		}
		l.condition.succeeded()
		s = Snapshot{}
		l.condition.describe(&s, true)
		if s.Suspect != "" || s.State != StateHearing {
			t.Errorf("healed: %+v", s)
		}
		l.join()
	})
}

type countingWalker struct {
	cache.ListerWatcherWithContext
	walks int
	found string
}

func (w *countingWalker) walk(context.Context) (string, error) {
	w.walks++
	return w.found, nil
}
