package controlplane

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

const fieldManager = "steadwatch-controlplane"

// ApplyFile applies the YAML documents of a file or, for a folder, of its *.yaml
// files in the order of their names. It is no kustomize: use kubectl for that.
func (c *ControlPlane) ApplyFile(ctx context.Context, path string) error {
	files := []string{path}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	if info.IsDir() {
		if files, err = filepath.Glob(filepath.Join(path, "*.yaml")); err != nil {
			return fmt.Errorf("apply: %w", err)
		}
		if len(files) == 0 {
			return fmt.Errorf("apply: no *.yaml in %s", path)
		}
	}
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("apply: %w", err)
		}
		if err := c.Apply(ctx, data); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// Apply applies YAML documents (Lists too) one after the other by server-side
// apply, as an administrator who wins conflicts. After a
// CustomResourceDefinition it waits until its kind is served. Objects without a
// namespace go to "default".
func (c *ControlPlane) Apply(ctx context.Context, documents []byte) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cfg := c.Config()
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	objects, err := parseDocuments(documents)
	if err != nil {
		return fmt.Errorf("apply: %w", err)
	}
	a := &applier{client: client, discovery: disco}
	for _, object := range objects {
		if err := a.apply(ctx, object); err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

func parseDocuments(documents []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(documents)))
	for n := 1; ; n++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read document %d: %w", n, err)
		}
		var content map[string]any
		data, err := yaml.YAMLToJSON(document)
		if err == nil {
			err = yaml.Unmarshal(data, &content)
		}
		if err != nil {
			return nil, fmt.Errorf("parse document %d: %w", n, err)
		}
		if len(content) == 0 {
			continue // comments only
		}
		object := &unstructured.Unstructured{Object: content}
		if object.GetKind() == "" || object.GetAPIVersion() == "" {
			return nil, fmt.Errorf("document %d has no apiVersion or no kind", n)
		}
		if !object.IsList() {
			objects = append(objects, object)
			continue
		}
		list, err := object.ToList()
		if err != nil {
			return nil, fmt.Errorf("read the list in document %d: %w", n, err)
		}
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
	}
}

type applier struct {
	client    dynamic.Interface
	discovery discovery.DiscoveryInterface
	mapper    meta.RESTMapper // nil: to be made from discovery
}

func (a *applier) apply(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := a.resourceFor(object)
	if err != nil {
		return err
	}
	options := metav1.ApplyOptions{FieldManager: fieldManager, Force: true}
	if _, err := resource.Apply(ctx, object.GetName(), object, options); err != nil {
		return err
	}
	if object.GroupVersionKind().GroupKind() == (schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}) {
		a.mapper = nil
		return a.awaitEstablished(ctx, resource, object)
	}
	return nil
}

func (a *applier) resourceFor(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	if a.mapper == nil {
		groups, err := restmapper.GetAPIGroupResources(a.discovery)
		if err != nil {
			return nil, fmt.Errorf("discover what the server knows: %w", err)
		}
		a.mapper = restmapper.NewDiscoveryRESTMapper(groups)
	}
	gvk := object.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return a.client.Resource(mapping.Resource), nil
	}
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return a.client.Resource(mapping.Resource).Namespace(namespace), nil
}

// awaitEstablished waits for the condition and then for the first answer of
// every served version: the handler comes a moment after the condition.
func (a *applier) awaitEstablished(ctx context.Context, crds dynamic.ResourceInterface, crd *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	return poll(ctx, func() error {
		current, err := crds.Get(ctx, crd.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if !established(current) {
			return fmt.Errorf("not Established yet: %v", current.Object["status"])
		}
		for _, v := range versions {
			version, _ := v.(map[string]any)
			name, _ := version["name"].(string)
			if served, _ := version["served"].(bool); !served {
				continue
			}
			gvr := schema.GroupVersionResource{Group: group, Version: name, Resource: plural}
			if _, err := a.client.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
				return fmt.Errorf("list %s: %w", gvr, err)
			}
		}
		return a.discovered(group, versions, plural)
	})
}

// discovered is nil once the new kind is in the discovery documents, from which
// the next object is mapped.
func (a *applier) discovered(group string, versions []any, plural string) error {
	for _, v := range versions {
		version, _ := v.(map[string]any)
		if served, _ := version["served"].(bool); !served {
			continue
		}
		gv := fmt.Sprintf("%s/%v", group, version["name"])
		list, err := a.discovery.ServerResourcesForGroupVersion(gv)
		if err != nil {
			return err
		}
		found := false
		for _, r := range list.APIResources {
			found = found || r.Name == plural
		}
		if !found {
			return fmt.Errorf("%s is not in the discovery of %s yet", plural, gv)
		}
	}
	groups, err := a.discovery.ServerGroups()
	if err != nil {
		return err
	}
	for _, g := range groups.Groups {
		if g.Name == group {
			return nil
		}
	}
	return fmt.Errorf("group %s is not in discovery yet", group)
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, _ := c.(map[string]any); condition["type"] == "Established" && condition["status"] == "True" {
			return true
		}
	}
	return false
}

// poll repeats f every 50 ms until it returns nil or ctx ends; a refusal for
// good ends it at once.
func poll(ctx context.Context, f func() error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last state: %w", context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}
