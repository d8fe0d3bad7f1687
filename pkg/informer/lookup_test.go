package informer_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	platformv1alpha1 "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	platformclient "github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned/typed/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

var configMapClient = informer.ListWatchClient(corev1client.NewForConfig, (*corev1client.CoreV1Client).ConfigMaps)

// byData indexes ConfigMaps by the value under "ref".
var byData = cache.TypedIndexers[*corev1.ConfigMap]{"ref": func(cm *corev1.ConfigMap) ([]string, error) { return []string{cm.Data["ref"]}, nil }}

// What is found is what the copy has, of the namespaces that it is of.
func TestLookups(t *testing.T) {
	a := newAPIServer(t)
	a.put("a", "one", map[string]string{"ref": "x"})
	a.put("b", "two", map[string]string{"ref": "x"})
	a.put("b", "three", map[string]string{"ref": "a/one"})
	a.put("c", "unwatched", map[string]string{"ref": "x"})
	i, err := informer.NewForConfig(&rest.Config{Host: a.url, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}},
		configMapClient, informer.Config[*corev1.ConfigMap]{Resource: configMaps, Indexers: byData, Namespaces: []string{"a", "b"}})
	if err != nil {
		t.Fatal(err)
	}
	start(t, i)
	waitSynced(t, i.HasSyncedChecker())

	if got, err := i.Get("b", "two"); err != nil || got.Name != "two" || got.Namespace != "b" {
		t.Errorf("Get of what is there: %v, %v", got, err)
	}
	if _, err := i.Get("b", "one"); !apierrors.IsNotFound(err) {
		t.Errorf("Get of what is not there: %v, want one that IsNotFound knows", err)
	}
	if _, err := i.Get("c", "unwatched"); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("Get of a namespace that is not watched: %v, want an error that does not say that there is none", err)
	}
	for key, want := range map[cache.ObjectName]bool{{Namespace: "a", Name: "one"}: true, {Namespace: "a", Name: "two"}: false, {Namespace: "c", Name: "unwatched"}: false} {
		if got := i.Has(key); got != want {
			t.Errorf("Has(%s) = %t", key, got)
		}
	}
	for what, test := range map[string]struct {
		got  []cache.ObjectName
		want []string
	}{
		"Keys":              {i.Keys(), []string{"a/one", "b/three", "b/two"}},
		"ByIndex":           {i.ByIndex("ref", "x"), []string{"a/one", "b/two"}},
		"Referring":         {i.Referring("ref")(cache.NewObjectName("a", "one")), []string{"b/three"}},
		"ByIndex, no value": {i.ByIndex("ref", "z"), nil},
		"ByIndex, no index": {i.ByIndex("other", "x"), nil},
	} {
		if diff := cmp.Diff(test.want, sorted(test.got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

func sorted(keys []cache.ObjectName) (names []string) {
	for _, key := range keys {
		names = append(names, key.String())
	}
	slices.Sort(names)
	return names
}

// An object that cannot be decoded is among the keys, once, whether or not a good
// version stands in for it: who works through all of them must not pass it over.
func TestKeysOfObjectsThatCannotBeDecoded(t *testing.T) {
	s := newRawServer(t)
	s.put("good", goodSpec, "")
	s.put("turns-bad", goodSpec, "")
	s.put("bad", badSpec, "")
	i, err := informer.NewForConfig(&rest.Config{Host: s.url, QPS: -1}, informer.TolerantClient(platformclient.NewForConfig),
		informer.Config[*platformv1alpha1.WebApp]{Resource: webApps})
	if err != nil {
		t.Fatal(err)
	}
	start(t, i)
	waitSynced(t, i.HasSyncedChecker())
	s.put("turns-bad", badSpec, "")
	turned := cache.NewObjectName("default", "turns-bad")
	eventually(t, 5*time.Second, "it to turn bad", func() (bool, any) {
		_, bad := i.Undecodable(turned)
		return bad, i.Snapshot()
	})
	if diff := cmp.Diff([]string{"default/bad", "default/good", "default/turns-bad"}, sorted(i.Keys())); diff != "" {
		t.Errorf("keys (-want +got):\n%s", diff)
	}
	reason, _ := i.Undecodable(turned)
	if !strings.Contains(reason, "spec.drainTimeout is ") {
		t.Errorf("Undecodable says %q: it does not name the field", reason)
	}
	if reason, bad := i.Undecodable(cache.NewObjectName("default", "good")); bad || reason != "" {
		t.Errorf("Undecodable of a good one: %q, %t", reason, bad)
	}
}

func TestNewForConfigRefuses(t *testing.T) {
	broken := errors.New("no such group")
	for name, test := range map[string]struct {
		reason string
		config *rest.Config
		client informer.Client
		want   string
	}{
		"NoConfig":     {"there is nothing to connect to", nil, configMapClient, "Connection was made from nil"},
		"OwnTransport": {"its connections cannot be closed", &rest.Config{Transport: http.DefaultTransport}, configMapClient, "Connection was made from a rest.Config with a Transport"},
		"Client": {"what the client's constructor says is passed on", &rest.Config{}, informer.ListWatchClient(
			func(*rest.Config) (*corev1client.CoreV1Client, error) { return nil, broken }, (*corev1client.CoreV1Client).ConfigMaps), broken.Error()},
		"Tolerant": {"that too", &rest.Config{}, informer.TolerantClient(
			func(*rest.Config) (*corev1client.CoreV1Client, error) { return nil, broken }), broken.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := informer.NewForConfig(test.config, test.client, informer.Config[*corev1.ConfigMap]{Resource: configMaps})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "configmaps") {
				t.Errorf("%s: error %v, want one of configmaps that says %q", test.reason, err, test.want)
			}
		})
	}
}

// stubborn is an informer that takes its time to end.
type stubborn struct{ ended chan struct{} }

func (s stubborn) Run(ctx context.Context) error {
	<-ctx.Done()
	time.Sleep(time.Second)
	close(s.ended)
	return nil
}

// What Start has started ends with stop, and has ended when stop returns.
func TestStopJoinsInformers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, last := stubborn{make(chan struct{})}, stubborn{make(chan struct{})}
		stop := informer.Start(context.WithoutCancel(t.Context()), first, last)
		synctest.Wait()
		stop()
		for _, i := range []stubborn{first, last} {
			select {
			case <-i.ended:
			default:
				t.Error("stop returned while an informer was running")
			}
		}
		stop() // a second one does nothing
	})
}
