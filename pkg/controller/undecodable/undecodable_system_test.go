package undecodable_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

// The life of an object that turns bad: children as they were, condition, one Event,
// the command that mends it as people paste it, and back.
func TestBadObjectIsToldAndMended(t *testing.T) {
	w := newWorld(t, plane.ForTest(t))
	stop := w.start()
	w.create("web", nil)
	w.rollOut("web")
	w.condition("web", "Ready", "True Available")
	before := w.deployment("web")

	// A new image comes with the bad value: it must not be rolled out.
	w.corrupt("web", map[string]any{"drainTimeout": "1", "image": "registry.example.com/shop:2.0"})
	message := w.condition("web", "Decodable", "False Undecodable")
	w.condition("web", "Ready", "True Available") // another's, as it was
	if got := w.deployment("web"); got.ResourceVersion != before.ResourceVersion {
		t.Errorf("the Deployment was written: %s", cmp.Diff(before, got))
	}
	bad, ok := w.copies.Quarantined(cache.NewObjectName(w.namespace, "web"))
	if !ok || len(bad.Fix) != 1 || !strings.Contains(message, bad.Fix[0]) || !strings.Contains(message, `spec.drainTimeout is "1"`) {
		t.Fatalf("record %+v, message %q", bad, message)
	}
	w.told("Warning Undecodable")

	w.guide("web", message)

	// What others write brings no write of ours, a restart neither.
	w.annotate("web", 1)
	stop()
	w.start()
	w.annotate("web", 2)
	version := w.object("web").GetResourceVersion()
	eventually(t, "the record to catch up", func() (bool, string) {
		bad, _ := w.copies.Quarantined(cache.NewObjectName(w.namespace, "web"))
		return bad.ResourceVersion == version, bad.ResourceVersion
	})
	<-time.After(1500 * time.Millisecond) // more than the time between two reports
	if got := w.object("web").GetResourceVersion(); got != version {
		t.Errorf("the object was written again: %s, not %s", got, version)
	}
	if got := w.reasons(); got != "" {
		t.Errorf("Events after a restart: %s", got)
	}

	w.paste(bad.Fix[0], "30s")
	w.condition("web", "Decodable", "True Decoded")
	w.told("Normal Decoded")
	eventually(t, "the new image to be rolled out at last", func() (bool, string) {
		image := w.deployment("web").Spec.Template.Spec.Containers[0].Image
		return image == "registry.example.com/shop:2.0", image
	})
}

func (w *world) annotate(name string, n int) {
	w.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"example.com/n":"%d"}}}`, n)
	if _, err := w.webApps.Patch(w.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

// paste runs a command as a person does who has replaced the placeholder.
func (w *world) paste(command, value string) {
	w.Helper()
	placeholder := regexp.MustCompile(`<[^>]*>`)
	if got := placeholder.FindAllString(command, -1); len(got) != 1 {
		w.Fatalf("placeholders %q in %s", got, command)
	}
	command = placeholder.ReplaceAllLiteralString(command, value)
	w.sh(command)
}

// guide runs the commands that docs/undecodable.md gives for looking at an object, and
// finds the message that it shows to be the real one.
func (w *world) guide(name, message string) {
	w.Helper()
	guide, err := os.ReadFile("../../../docs/undecodable.md")
	if err != nil {
		w.Fatal(err)
	}
	if shown := strings.ReplaceAll(message, "-n "+w.namespace+" ", "-n shop "); !strings.Contains(string(guide), shown+"\n") {
		w.Errorf("docs/undecodable.md does not show this message:\n%s", shown)
	}
	looked := 0
	for line := range strings.Lines(string(guide)) {
		if !strings.HasPrefix(line, "kubectl ") || !strings.Contains(line, " -n shop") {
			continue
		}
		looked++
		out := w.sh(strings.ReplaceAll(line, "-n shop", "-n "+w.namespace))
		if !strings.Contains(out, "False") && !strings.Contains(out, message) || !strings.Contains(out, name) {
			w.Errorf("%s shows neither that it is bad nor why:\n%s", line, out)
		}
	}
	if looked < 3 {
		w.Errorf("only %d commands found in docs/undecodable.md", looked)
	}
}

func (w *world) sh(command string) string {
	w.Helper()
	out, err := w.plane.Shell(w.T)(command)
	if err != nil {
		w.Fatalf("%s: %v: %s", command, err, out)
	}
	return out
}

// An object that nobody has ever decoded, found at start.
func TestBadFromTheStart(t *testing.T) {
	w := newWorld(t, plane.ForTest(t))
	w.store("web", map[string]any{"drainTimeout": "1"})
	w.create("good", nil)
	w.start()
	w.condition("web", "Decodable", "False Undecodable")
	w.deployment("good")
	if _, err := w.kube.AppsV1().Deployments(w.namespace).Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a Deployment was made for a spec that nobody could read: %v", err)
	}
	if got := w.object("good"); strings.Contains(fmt.Sprint(got.Object["status"]), "Decodable") {
		t.Errorf("a good object has the condition: %v", got.Object["status"])
	}
}

// The schema was tightened after the object was stored. Ratcheting lets the condition
// and the deletion through, for a value of a wrong JSON type as well, which server-side
// apply does not get past.
func TestTightenedSchema(t *testing.T) {
	w := newWorld(t, plane.ForTest(t))
	w.storeLoosely("web", "port", []any{"http"})

	_, err := w.webApps.Patch(t.Context(), "web", types.ApplyPatchType,
		[]byte(`{"apiVersion":"platform.tejo.dev/v1alpha1","kind":"WebApp","status":{"observedGeneration":1}}`), metav1.PatchOptions{FieldManager: "test"}, "status")
	if err == nil {
		t.Error("server-side apply was accepted: it could be used in place of a JSON patch")
	}
	t.Logf("server-side apply of the status: %v", err)

	w.start()
	w.condition("web", "Decodable", "False Undecodable")
	w.told("Warning Undecodable")
	w.webAppDelete("web")
	w.gone("web")
}

// A value of a wrong JSON type in a field that a CEL rule reads: the API server
// evaluates the rule all the same and refuses every change that leaves the value, of
// status and finalizers too. That is said once, with the command that gets it out.
func TestTightenedSchemaThatDoesNotRatchet(t *testing.T) {
	w := newWorld(t, plane.ForTest(t))
	w.storeLoosely("web", "configRef", []any{"settings"})
	w.start()
	w.event("Warning NotReported", "configRef")
	w.webAppDelete("web")
	message := w.event("Warning NotFinalized", "configRef")
	bad, ok := w.copies.Quarantined(cache.NewObjectName(w.namespace, "web"))
	if !ok || len(bad.Fix) != 1 || !strings.Contains(message, bad.Fix[0]) {
		t.Fatalf("record %+v, Event %q", bad, message)
	}
	w.paste(bad.Fix[0], "settings")
	w.gone("web")
	if got := w.reasons(); got != "" {
		t.Errorf("more Events: %s", got)
	}
}

// A number of replicas that is none: the API server reads it for the scale subresource
// whenever the object itself is written, so that it lets the condition through and not
// the end of the deletion. That is said once, with the command that gets it out.
func TestReplicasThatAreNoNumber(t *testing.T) {
	w := newWorld(t, plane.ForTest(t))
	w.start()
	w.create("web", nil)
	w.deployment("web")
	w.condition("web", "Ready", "False RollingOut")
	w.corrupt("web", map[string]any{"replicas": "two"})
	w.condition("web", "Decodable", "False Undecodable")
	w.event("Warning Undecodable", "spec.replicas")
	w.webAppDelete("web")
	eventually(t, "the drain", func() (bool, string) {
		d := w.deployment("web")
		return *d.Spec.Replicas == 0, fmt.Sprint(*d.Spec.Replicas)
	})
	w.rollOut("web")
	message := w.event("Warning NotFinalized", "spec.replicas")
	bad, ok := w.copies.Quarantined(cache.NewObjectName(w.namespace, "web"))
	if !ok || len(bad.Fix) != 1 || !strings.Contains(message, bad.Fix[0]) {
		t.Fatalf("record %+v, Event %q", bad, message)
	}
	w.paste(bad.Fix[0], "2")
	w.gone("web")
	if got := w.reasons(); got != "" {
		t.Errorf("more Events: %s", got)
	}
}

// storeLoosely creates a WebApp with our finalizer under a schema that says nothing
// about one field of the spec, and then says it again.
func (w *world) storeLoosely(name, field string, value any) {
	w.Helper()
	bad := func(name string) error {
		app := newApp(name, map[string]any{field: value})
		app.SetFinalizers([]string{v1alpha1.Finalizer})
		_, err := w.webApps.Create(w.Context(), app, metav1.CreateOptions{})
		return err
	}
	w.crd(func(spec map[string]any) {
		delete(spec["properties"].(map[string]any), field)
		spec["x-kubernetes-preserve-unknown-fields"] = true
	})
	eventually(w.T, "the loose schema", func() (bool, string) {
		err := bad(name)
		return err == nil, fmt.Sprint(err)
	})
	w.crd(func(map[string]any) {})
	eventually(w.T, "the tight schema", func() (bool, string) {
		err := bad(name + "-refused")
		return apierrors.IsInvalid(err), fmt.Sprint(err)
	})
}

// event waits for one that begins and goes on like that.
func (w *world) event(begins, contains string) string {
	w.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for {
		select {
		case e := <-w.events.Events:
			if strings.HasPrefix(e, begins) && strings.Contains(e, contains) {
				return e
			}
		case <-deadline.C:
			w.Fatalf("waited %s for an Event %q about %s", patience, begins, contains)
		}
	}
}

// A bad object drains, with the default time, and goes; finalizers of others, which
// come and go meanwhile, are theirs to remove.
func TestDeletionOfABadObject(t *testing.T) {
	w := newWorld(t, plane.ForTest(t))
	w.start()
	w.create("web", map[string]any{"drainTimeout": "1h"})
	w.rollOut("web")
	w.condition("web", "Ready", "True Available")
	var theirs []string
	for n := range 220 {
		theirs = append(theirs, fmt.Sprintf("example.com/f-%d", n))
	}
	w.changeFinalizers("web", func(all []string) []string { return slices.Concat(theirs[:110], all, theirs[110:]) })
	w.corrupt("web", map[string]any{"drainTimeout": "1"})
	w.condition("web", "Decodable", "False Undecodable")

	w.webAppDelete("web")
	eventually(t, "the drain", func() (bool, string) {
		d := w.deployment("web")
		return *d.Spec.Replicas == 0, fmt.Sprint(*d.Spec.Replicas)
	})
	if got := w.object("web").GetFinalizers(); !slices.Contains(got, v1alpha1.Finalizer) {
		t.Fatalf("let go before it was drained: %v", got)
	}

	// They take 200 of theirs away, one by one, while ours goes.
	for n, f := range theirs[:200] {
		if n == 20 {
			w.rollOut("web")
		}
		w.changeFinalizers("web", func(all []string) []string {
			return slices.DeleteFunc(all, func(other string) bool { return other == f })
		})
	}
	eventually(t, "our finalizer to go, and no other", func() (bool, string) {
		got := w.object("web").GetFinalizers()
		return slices.Equal(got, theirs[200:]), fmt.Sprint(got)
	})
	w.changeFinalizers("web", func([]string) []string { return nil })
	w.gone("web")
}

func (w *world) webAppDelete(name string) {
	w.Helper()
	if err := w.webApps.Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// changeFinalizers does it as another actor, again when somebody was quicker.
func (w *world) changeFinalizers(name string, change func([]string) []string) {
	w.Helper()
	eventually(w.T, "a change of finalizers", func() (bool, string) {
		o := w.object(name)
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": change(o.GetFinalizers()), "resourceVersion": o.GetResourceVersion()}})
		if err != nil {
			w.Fatal(err)
		}
		_, err = w.webApps.Patch(w.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

// crd applies the CRD with the schema of the spec changed.
func (w *world) crd(change func(spec map[string]any)) {
	w.Helper()
	raw, err := os.ReadFile(crdFile)
	if err != nil {
		w.Fatal(err)
	}
	var crd map[string]any
	if err := yaml.Unmarshal(raw, &crd); err != nil {
		w.Fatal(err)
	}
	version := crd["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
	schema := version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
	change(schema["properties"].(map[string]any)["spec"].(map[string]any))
	if raw, err = yaml.Marshal(crd); err != nil {
		w.Fatal(err)
	}
	if err := w.plane.Apply(w.Context(), raw); err != nil {
		w.Fatal(err)
	}
}
