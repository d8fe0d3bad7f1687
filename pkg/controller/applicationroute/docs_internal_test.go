package applicationroute

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/steadwatch/steadwatch/pkg/apis/networking/v1alpha1"
)

const (
	docsFile   = "../../../docs/applicationroute.md"
	sampleFile = "../../../manifests/samples/applicationroute.yaml"
)

// documents returns the YAML documents of each kind in text, as maps.
func documents(t *testing.T, text []byte) map[string]map[string]any {
	t.Helper()
	byKind := map[string]map[string]any{}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		var object map[string]any
		if err := yaml.Unmarshal(document, &object); err != nil {
			t.Fatal(err)
		}
		if kind, ok := object["kind"].(string); ok {
			byKind[kind] = object
		}
	}
	return byKind
}

// What the page says that the sample is made into is what it is made into.
func TestDocumentedExample(t *testing.T) {
	page, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []byte
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1) {
		blocks = append(append(blocks, block[1]...), "\n---\n"...)
	}
	shown := documents(t, blocks)
	sample, err := os.ReadFile(sampleFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(documents(t, sample)[kind], shown[kind]); diff != "" {
		t.Errorf("the sample (-file +page):\n%s", diff)
	}
	route := decodeAs[v1alpha1.ApplicationRoute](t, shown[kind])
	gateway, _ := gatewayOf(route, cache.ObjectName{})
	for name, child := range map[string]any{
		kindHTTPRoute:   desiredHTTPRoute(route, gateway, route.Spec.Hostnames),
		kindListenerSet: desiredListenerSet(route, gateway, route.Spec.Hostnames),
	} {
		want := *decodeAs[map[string]any](t, child)
		delete(want["metadata"].(map[string]any), "ownerReferences") // the page has it in words
		if diff := cmp.Diff(want, shown[name]); diff != "" {
			t.Errorf("%s (-rendered +page):\n%s", name, diff)
		}
	}
}

// Every reason of ours has a line.
func TestDocumentedReasons(t *testing.T) {
	page, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no source: %v", err)
	}
	constant := regexp.MustCompile(`(?m)^\s*reason[A-Z]\w*\s*=\s*"(\w+)"`)
	found := 0
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range constant.FindAllSubmatch(source, -1) {
			found++
			if !regexp.MustCompile("(?m)^\\|[^|]*`" + string(m[1]) + "`").Match(page) {
				t.Errorf("%s: reason %s has no line in a table of docs/applicationroute.md", file, m[1])
			}
		}
	}
	if found < 15 {
		t.Errorf("found %d reasons in the source: the pattern does not fit any more", found)
	}
}
