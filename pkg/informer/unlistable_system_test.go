package informer_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	platformv1alpha1 "github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
	"github.com/steadwatch/steadwatch/pkg/informer"
)

// One stored object that the API server itself cannot read: its kind is named with
// the server's words and the object, other kinds go on, and it heals by itself when
// the object is repaired in etcd, or deleted the way that the hint names.
func TestSystemR16R20UnlistableKind(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Config{})
	if err := cp.Apply(t.Context(), looseCRD(t)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		if err := cp.Apply(t.Context(), []byte("apiVersion: platform.tejo.dev/v1alpha1\nkind: WebApp\nmetadata: {name: "+name+"}\nspec: {image: v1}\n")); err != nil {
			t.Fatal(err)
		}
	}
	kube, err := kubernetes.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	clients, err := versioned.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := dynamic.NewForConfig(cp.Config())
	if err != nil {
		t.Fatal(err)
	}
	key := controlplane.EtcdKey(webApps.GroupResource(), "default", "b")
	good, err := cp.EtcdGet(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	repair := func() {
		if _, err := cp.EtcdPut(t.Context(), key, good); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name, stored string
		restart      bool // the API server, so that its watch cache is never filled
		heal         func()
		objects      int
	}{
		{"R16 unknown version", strings.Replace(string(good), webApps.GroupVersion().String(), "x/v2beta2", 1), false, repair, 3},
		{"R20 garbage before the API server starts", "\x00\xff{{{garbage", true, repair, 3},
		{"R20 garbage", "\x00\xff{{{garbage", false, func() {
			yes := true
			if err := raw.Resource(webApps).Namespace("default").Delete(t.Context(), "b",
				metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: &yes}); err != nil {
				t.Fatal(err)
			}
		}, 2},
	} {
		if _, err := cp.EtcdPut(t.Context(), key, []byte(test.stored)); err != nil {
			t.Fatal(err)
		}
		if test.restart {
			if err := restart(t, cp); err != nil {
				t.Fatal(err)
			}
		}
		a, err := informer.New(informer.Config[*platformv1alpha1.WebApp]{
			Resource: webApps, ListerWatcher: informer.Tolerant(clients.PlatformV1alpha1().RESTClient()),
		})
		if err != nil {
			t.Fatal(err)
		}
		log := start(t, a)
		other, err := informer.New(informer.Config[*corev1.ConfigMap]{
			Resource: configMaps, ListerWatcher: informer.ListWatch(kube, kube.CoreV1().ConfigMaps),
		})
		if err != nil {
			t.Fatal(err)
		}
		start(t, other)
		eventually(t, patience, test.name+": named", func() (bool, any) {
			s := a.Snapshot()
			return s.State == informer.StateUnlistable && s.Reason == informer.Corrupt && s.Suspect == "default/b" &&
				strings.Contains(s.Message, "object not decodable"), s
		})
		if text := log.String(); !strings.Contains(text, `suspect="default/b"`) || strings.Contains(text, "kubectl patch") {
			t.Errorf("%s: log:\n%s", test.name, text)
		}
		created := time.Now()
		cm, err := kube.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, patience, test.name+": another kind", has(other, "default/"+cm.Name))
		t.Logf("%s: the other kind's change was seen after %s; %+v", test.name, time.Since(created), a.Snapshot())
		test.heal()
		healed := time.Now()
		eventually(t, patience, test.name+": healed", func() (bool, any) {
			s := a.Snapshot()
			return s.State == informer.StateHearing && s.Suspect == "" && s.Objects == test.objects, s
		})
		t.Logf("%s: healed after %s", test.name, time.Since(healed))
	}
}
