package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

var widgetResource = schema.GroupResource{Group: "example.com", Resource: "widgets"}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer}
`

func TestPauseAndRestart(t *testing.T) {
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Config{})
	namespace := cp.Namespace(t)
	client := clientFor(t, cp.Config())
	create := func(ctx context.Context, name string) error {
		_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, configMap(name), metav1.CreateOptions{})
		return err
	}
	silent := func(t *testing.T, name string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := create(ctx, name); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("create: got %v, want a timeout", err)
		}
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(t, create(t.Context(), "before"))

	t.Run("a paused API server is silent", func(t *testing.T) {
		must(t, cp.Pause(t.Context()))
		silent(t, "paused-1")
		must(t, cp.Resume())
		must(t, create(t.Context(), "resumed-1"))
	})
	t.Run("a paused etcd makes writes hang", func(t *testing.T) {
		must(t, cp.PauseEtcd(t.Context()))
		silent(t, "paused-2")
		must(t, cp.ResumeEtcd())
		eventually(t, 10*time.Second, "create again", func() error { return create(t.Context(), "resumed-2") })
	})
	t.Run("a stopped API server refuses, and comes back on its port with its data", func(t *testing.T) {
		cp.StopAPIServer()
		if err := create(t.Context(), "stopped"); err == nil || apierrors.ReasonForError(err) != metav1.StatusReasonUnknown {
			t.Errorf("create: got %v, want a connection error", err)
		}
		must(t, cp.StartAPIServer(t.Context()))
		_, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "before", metav1.GetOptions{})
		must(t, err)
	})
	t.Run("etcd keeps its data over a restart", func(t *testing.T) {
		cp.StopEtcd()
		must(t, cp.StartEtcd(t.Context()))
		eventually(t, 20*time.Second, "create again", func() error { return create(t.Context(), "restarted") })
		_, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "before", metav1.GetOptions{})
		must(t, err)
	})
	must(t, cp.Err())
}

func TestTwoAPIServersOnOneEtcd(t *testing.T) {
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Config{Audit: true})
	second, err := cp.AddAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	namespace := cp.Namespace(t)
	if cp.Config().Host == second.Config().Host {
		t.Fatalf("both are at %s", second.Config().Host)
	}
	if _, err := clientFor(t, cp.Config()).CoreV1().ConfigMaps(namespace).Create(t.Context(), configMap("one"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cp.StopAPIServer()
	if _, err := clientFor(t, second.Config()).CoreV1().ConfigMaps(namespace).Get(t.Context(), "one", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	events, err := cp.Audit(t.Context(), func(e controlplane.AuditEvent) bool {
		return e.Namespace == namespace && e.Resource == "configmaps" && e.Stage == controlplane.StageResponseComplete
	})
	if err != nil || len(events) != 2 || events[0].Server != "kube-apiserver" || events[1].Server != "kube-apiserver-2" {
		t.Errorf("audit: %+v, %v; want a create at the first server and a get at the second", events, err)
	}
	if err := cp.StartAPIServer(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestRestoreSetsTheRevisionBack(t *testing.T) {
	t.Parallel()
	cp := controlplane.ForTest(t, controlplane.Config{})
	namespace := cp.Namespace(t)
	configMaps := clientFor(t, cp.Config()).CoreV1().ConfigMaps(namespace)
	if _, err := configMaps.Create(t.Context(), configMap("kept"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	snapshot, err := cp.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("RestartAPIServers=%t", restart), func(t *testing.T) {
			for i := range 50 {
				// The names differ: without a restart a cached LIST still has the old ones.
				name := fmt.Sprintf("lost-%t-%d", restart, i)
				if _, err := configMaps.Create(t.Context(), configMap(name), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			before, err := cp.EtcdRevision(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := cp.Restore(t.Context(), snapshot, controlplane.RestoreOptions{RestartAPIServers: restart}); err != nil {
				t.Fatal(err)
			}
			after, err := cp.EtcdRevision(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			// A starting API server writes a little.
			if after >= before || after < snapshot.Revision || after > snapshot.Revision+40 {
				t.Errorf("revision after the restore: %d; the snapshot's: %d, before the restore: %d", after, snapshot.Revision, before)
			}
			eventually(t, 20*time.Second, "GET tells what etcd has", func() error {
				if _, err := configMaps.Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
					return err
				}
				lost := fmt.Sprintf("lost-%t-0", restart)
				if _, err := configMaps.Get(t.Context(), lost, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					return fmt.Errorf("get %s: got %v, want NotFound", lost, err)
				}
				return nil
			})
		})
	}
}

func TestStartTellsWhyAProcessEnded(t *testing.T) {
	plane.ForTest(t) // skips without binaries
	_, err := controlplane.Start(t.Context(), controlplane.Config{ExtraAPIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "kube-apiserver ended early") || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("Start: %v; want the server's own words", err)
	}
}
