package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/install"
	networking "github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
)

// modes are how client-go gets the initial state. Its feature gate decides.
var modes = []string{"WatchList", "LIST"}

func gate(mode string) string {
	return fmt.Sprintf("KUBE_FEATURE_WatchListClient=%t", mode == "WatchList")
}

// measure returns the runs by mode and contestant, in order.
func measure(ctx context.Context, cp *controlplane.ControlPlane, binary string, o options, out io.Writer) (map[string]map[string][]measured, error) {
	say := func(format string, args ...any) { fmt.Fprintf(out, "syncbench: "+format+"\n", args...) }
	root, err := install.Root()
	if err != nil {
		return nil, err
	}
	if err := cp.ApplyFile(ctx, filepath.Join(root, "manifests/crd/networking.tejo.dev_applicationroutes.yaml")); err != nil {
		return nil, err
	}
	say("writing %d ApplicationRoutes to etcd", o.n)
	if err := write(ctx, cp, o); err != nil {
		return nil, err
	}
	results := map[string]map[string][]measured{}
	for _, mode := range modes {
		results[mode] = map[string][]measured{}
	}
	for round := range o.rounds + 1 { // the first one warms the API server up
		for _, mode := range modes {
			// Not always in one order: what the API server has just done for one it
			// collects garbage of while it serves the next.
			all := o.contestants()
			for i := range all {
				as := all[(i+round)%len(all)]
				var m measured
				cmd := exec.CommandContext(ctx, binary, o.child(as, cp.KubeconfigFile())...)
				cmd.Env = append(os.Environ(), gate(mode))
				var errs bytes.Buffer
				cmd.Stderr = &errs
				answer, err := cmd.Output()
				if err == nil {
					err = json.Unmarshal(answer, &m)
				}
				if err != nil {
					return nil, fmt.Errorf("%s by %s: %w: %s", as, mode, err, errs.Bytes())
				}
				say("%d/%d %s by %s: %s, CPU %s, peak %.0f MiB", round, o.rounds, as, mode,
					m.Wall.Round(time.Millisecond), m.CPU.Round(time.Millisecond), m.PeakRSS/(1<<20))
				if round > 0 {
					results[mode][as] = append(results[mode][as], m)
				}
			}
		}
	}
	return results, nil
}

// write stores the objects and waits until the API server has seen them all.
func write(ctx context.Context, cp *controlplane.ControlPlane, o options) error {
	resource := networking.SchemeGroupVersion.WithResource("applicationroutes").GroupResource()
	writing, wctx := errgroup.WithContext(ctx)
	writing.SetLimit(8)
	for i := range o.n {
		writing.Go(func() error {
			namespace, name := fmt.Sprintf("sync-%03d", i%100), fmt.Sprintf("route-%06d", i)
			_, err := cp.EtcdPut(wctx, controlplane.EtcdKey(resource, namespace, name), route(namespace, name, i, o))
			return err
		})
	}
	if err := writing.Wait(); err != nil {
		return err
	}
	clients, err := versioned.NewForConfig(cp.Config())
	if err != nil {
		return err
	}
	for {
		// Metadata of one object: a bad one is of no matter.
		body, err := clients.NetworkingV1alpha1().RESTClient().Get().Resource("applicationroutes").
			Param("limit", "1").SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").Do(ctx).Raw()
		if err != nil {
			return err
		}
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(body, &list); err != nil {
			return err
		}
		seen := len(list.Items)
		if list.RemainingItemCount != nil {
			seen += int(*list.RemainingItemCount)
		}
		if seen >= o.n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the API server has seen %d of %d objects: %w", seen, o.n, context.Cause(ctx))
		case <-time.After(time.Second):
		}
	}
}

// route is an object as it is stored.
func route(namespace, name string, i int, o options) []byte {
	timeout, managed := "2s", ""
	if o.bad > 0 && i%o.bad == 0 {
		timeout = "1"
	}
	if o.managedFields {
		managed = `"managedFields":[{"apiVersion":"networking.tejo.dev/v1alpha1","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:annotations":{".":{},"f:example.com/owner":{}}},"f:spec":{".":{},"f:backends":{".":{},"k:{\"port\":8080,\"service\":\"svc\"}":{".":{},"f:port":{},"f:service":{},"f:weight":{}}},"f:hostnames":{".":{},"v:\"route.example.com\"":{}},"f:timeout":{}}},"manager":"kubectl","operation":"Apply","time":"2026-11-29T10:00:00Z"}],`
	}
	return fmt.Appendf(nil, `{"apiVersion":"networking.tejo.dev/v1alpha1","kind":"ApplicationRoute","metadata":{"annotations":{"example.com/owner":"team-%d"},"creationTimestamp":"2026-11-29T10:00:00Z","generation":2,"labels":{"app":"a"},%s"name":%q,"namespace":%q,"uid":"7f3c1a52-9b1e-4c7e-9a44-%012d"},"spec":{"backends":[{"port":8080,"service":"svc-%d","weight":1}],"hostnames":["route-%d.example.com"],"timeout":%q},"status":{"conditions":[{"lastTransitionTime":"2026-11-29T10:00:01Z","message":"accepted","reason":"Accepted","status":"True","type":"Ready"}],"observedGeneration":2}}`,
		i%50, managed, name, namespace, i, i, i, timeout)
}
