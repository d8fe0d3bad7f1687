package webapp

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller"
	"github.com/steadwatch/steadwatch/pkg/controller/child"
)

func statusDeployment(change ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 2},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)},
		Status:     appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 3, UpdatedReplicas: 3, ReadyReplicas: 3, AvailableReplicas: 3},
	}
	for _, f := range change {
		f(d)
	}
	return d
}

func failed(conditionType appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) {
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: conditionType, Status: status, Reason: reason, Message: "so it is"}}
	}
}

var deploymentKind = schema.GroupKind{Group: "apps", Kind: "Deployment"}

func invalid() error {
	return fmt.Errorf("apply Deployment: %w", apierrors.NewInvalid(deploymentKind, "web",
		field.ErrorList{field.Invalid(field.NewPath("spec", "selector"), "x", "field is immutable")}))
}

func namespaceIsTerminating() error {
	err := apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "web", errors.New("being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return fmt.Errorf("apply: %w", err)
}

func fieldConflict() error {
	return apierrors.NewApplyConflict([]metav1.StatusCause{{
		Type: metav1.CauseTypeFieldManagerConflict, Message: `conflict with "helm" using apps/v1`, Field: ".spec.template",
	}}, "conflict")
}

func TestConditions(t *testing.T) {
	available := "3 of 3 pods are available"
	missing := `ConfigMap "settings" does not exist in namespace "shop"`
	cases := map[string]struct {
		reason                       string
		seen                         observed
		ready, progressing, degraded string
		deps                         string
	}{
		"Converged": {"everything is there", observed{deployment: statusDeployment()},
			"True Available " + available, "False RolledOut " + available, "False AsExpected ", "True DependenciesFound "},
		"Autoscaled": {"the live number is what counts", observed{deployment: statusDeployment(func(d *appsv1.Deployment) {
			d.Spec.Replicas = ptr.To[int32](4)
		})}, "False RollingOut 3 of 4 pods are up to date, 3 available, 0 of an older template",
			"True RollingOut 3 of 4 pods are up to date, 3 available, 0 of an older template", "False AsExpected ", "True DependenciesFound "},
		"OldPods": {"a rollout ends when the last old pod has gone", observed{deployment: statusDeployment(func(d *appsv1.Deployment) {
			d.Status.Replicas = 4
		})}, "False RollingOut 3 of 3 pods are up to date, 3 available, 1 of an older template",
			"True RollingOut 3 of 3 pods are up to date, 3 available, 1 of an older template", "False AsExpected ", "True DependenciesFound "},
		"NotTakenUp": {"a status of an older spec says nothing, complaints included", observed{deployment: statusDeployment(
			failed(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "x"), func(d *appsv1.Deployment) { d.Generation = 3 })},
			"False RollingOut the Deployment's latest spec has not been taken up yet",
			"True RollingOut the Deployment's latest spec has not been taken up yet", "False AsExpected ", "True DependenciesFound "},
		"ConfigMissing": {"no Deployment is made without its ConfigMap", observed{configMissing: true},
			"False ConfigMapMissing " + missing, "False ConfigMapMissing " + missing, "False AsExpected ", "False ConfigMapMissing " + missing},
		"ConfigGone": {"the pods run on", observed{configMissing: true, deployment: statusDeployment()},
			"False ConfigMapMissing " + missing, "False RolledOut " + available, "False AsExpected ", "False ConfigMapMissing " + missing},
		"Deadline": {"the Deployment's complaint is ours", observed{deployment: statusDeployment(
			failed(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded"))},
			"False ProgressDeadlineExceeded so it is", "False ProgressDeadlineExceeded so it is", "True ProgressDeadlineExceeded so it is", "True DependenciesFound "},
		"ReplicaFailure": {"a quota, for example", observed{deployment: statusDeployment(
			failed(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate"))},
			"False ReplicaFailure so it is", "False ReplicaFailure so it is", "True ReplicaFailure so it is", "True DependenciesFound "},
		"Invalid": {"the server's own words", observed{deployment: statusDeployment(), err: invalid()},
			`False Invalid apply Deployment: Deployment.apps "web" is invalid: spec.selector: Invalid value: "x": field is immutable`,
			`False Invalid apply Deployment: Deployment.apps "web" is invalid: spec.selector: Invalid value: "x": field is immutable`,
			`True Invalid apply Deployment: Deployment.apps "web" is invalid: spec.selector: Invalid value: "x": field is immutable`, "True DependenciesFound "},
		"FieldConflict": {"manager and field are named", observed{err: fieldConflict()},
			`False FieldConflict .spec.template is owned by field manager "helm"`, `False FieldConflict .spec.template is owned by field manager "helm"`,
			`True FieldConflict .spec.template is owned by field manager "helm"`, "True DependenciesFound "},
		"Forbidden": {"a missing permission or a quota does not mend itself", observed{err: apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "web", errors.New("no"))},
			`False Forbidden services "web" is forbidden: no`, `False Forbidden services "web" is forbidden: no`, `True Forbidden services "web" is forbidden: no`, "True DependenciesFound "},
		"NamespaceTerminating": {"is told from other 403s by its cause", observed{err: namespaceIsTerminating()},
			"False NamespaceTerminating the namespace is being deleted: nothing can be created in it",
			"False NamespaceTerminating the namespace is being deleted: nothing can be created in it",
			"True NamespaceTerminating the namespace is being deleted: nothing can be created in it", "True DependenciesFound "},
		"NotOwned": {"names what stands in the way and whose it is", observed{err: errors.Join(child.NotOwnedError{Kind: "Service", Name: "web", Owner: `Helm "x"`, For: "WebApp"})},
			`False ChildNotOwned Service "web" is controlled by Helm "x" and not by this WebApp: delete or rename it, or choose another name for the WebApp`,
			`False ChildNotOwned Service "web" is controlled by Helm "x" and not by this WebApp: delete or rename it, or choose another name for the WebApp`,
			`True ChildNotOwned Service "web" is controlled by Helm "x" and not by this WebApp: delete or rename it, or choose another name for the WebApp`, "True DependenciesFound "},
		"Terminal": {"only a change helps", observed{err: controller.Terminal(errors.New("no way"))},
			"False Terminal no way", "False Terminal no way", "True Terminal no way", "True DependenciesFound "},
		"Passing": {"what time may mend is no degradation", observed{deployment: statusDeployment(), err: apierrors.NewInternalError(errors.New("etcd"))},
			"False InternalError Internal error occurred: etcd", "True InternalError Internal error occurred: etcd", "False AsExpected ", "True DependenciesFound "},
		"Unknown": {"an error that is none of the server's", observed{err: errors.New("dial tcp: refused")},
			"False ReconcileError dial tcp: refused", "True ReconcileError dial tcp: refused", "False AsExpected ", "True DependenciesFound "},
		"Waiting": {"something has to go first", observed{wait: &child.WaitError{Reason: "ChildTerminating", Message: "it goes"}},
			"False ChildTerminating it goes", "True ChildTerminating it goes", "False AsExpected ", "True DependenciesFound "},
		"Draining": {"a deletion beats all", observed{draining: true, deployment: statusDeployment()},
			"False Draining the WebApp is being deleted", "True Draining waiting for the pods to end", "False AsExpected ", "True DependenciesFound "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := map[string]string{"Ready": tc.ready, "Progressing": tc.progressing, "Degraded": tc.degraded, "DependenciesReady": tc.deps}
			got := map[string]string{}
			for _, c := range computeConditions(testApp(), tc.seen) {
				got[c.Type] = fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNoDependencies(t *testing.T) {
	app := testApp(func(a *v1alpha1.WebApp) { a.Spec.ConfigRef = "" })
	if got := computeConditions(app, observed{deployment: statusDeployment()})[3]; got.Status != metav1.ConditionTrue || got.Reason != "NoDependencies" {
		t.Errorf("without a configRef: got %s %s, want True NoDependencies", got.Status, got.Reason)
	}
}

func TestComputeStatus(t *testing.T) {
	then, now := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	first := computeStatus(testApp(), observed{deployment: statusDeployment()}, then)
	want := v1alpha1.WebAppStatus{ObservedGeneration: 3, Replicas: 3, ReadyReplicas: 3, UpdatedReplicas: 3, Selector: "platform.tejo.dev/webapp=web"}
	got := *first
	got.Conditions = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("fields (-want +got):\n%s", diff)
	}
	app := testApp(func(a *v1alpha1.WebApp) { a.Status = *first })

	again := computeStatus(app, observed{deployment: statusDeployment()}, now)
	if diff := cmp.Diff(first, again); diff != "" || statusChanged(first, again) {
		t.Errorf("nothing changed, later (-first +again):\n%s", diff)
	}

	degraded := computeStatus(app, observed{err: invalid()}, now)
	for _, c := range degraded.Conditions {
		moved := c.LastTransitionTime == now
		if shouldMove := c.Type == "Ready" || c.Type == "Degraded"; moved != shouldMove {
			t.Errorf("%s is %s now: lastTransitionTime has moved: %t, want %t", c.Type, c.Status, moved, shouldMove)
		}
		if c.ObservedGeneration != 3 {
			t.Errorf("%s: observedGeneration is %d, want 3", c.Type, c.ObservedGeneration)
		}
	}
	if degraded.Replicas != 3 || degraded.ReadyReplicas != 3 {
		t.Errorf("a pass that could not look has lost the numbers: %+v", degraded)
	}
	if gone := computeStatus(app, observed{configMissing: true}, now); gone.Replicas != 0 {
		t.Errorf("a pass that found no Deployment still reports %d replicas", gone.Replicas)
	}
}

// A text that is new at each attempt would be a write at each attempt, and each
// write wakes the key that backs off.
func TestErrorTextIsStable(t *testing.T) {
	fail := func(message string) observed { return observed{err: errors.New(message)} }
	first := computeStatus(testApp(), fail(`call webhook: read tcp 10.0.0.1:51234->10.0.0.9:443: connection reset (id 5f3e-9a)`), metav1.Now())
	app := testApp(func(a *v1alpha1.WebApp) { a.Status = *first })
	cases := map[string]struct {
		reason, message string
		changed         bool
	}{
		"Port":  {"another port and id", `call webhook: read tcp 10.0.0.1:60001->10.0.0.9:443: connection reset (id 77aa-0b)`, false},
		"Words": {"another failure", `call webhook: no endpoints`, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := statusChanged(&app.Status, computeStatus(app, fail(tc.message), metav1.Now())); got != tc.changed {
				t.Errorf("%s: changed is %t, want %t", tc.reason, got, tc.changed)
			}
		})
	}
	app.Generation++
	if next := computeStatus(app, fail(cases["Port"].message), metav1.Now()); next.Conditions[0].Message != cases["Port"].message {
		t.Errorf("for a new generation the old text stayed: %s", next.Conditions[0].Message)
	}
}

func TestStatusChangedIgnoresOthers(t *testing.T) {
	status := computeStatus(testApp(), observed{deployment: statusDeployment()}, metav1.Now())
	current := status.DeepCopy()
	current.Conditions = append(current.Conditions, metav1.Condition{Type: "Decodable", Status: "True"})
	for i := range current.Conditions {
		current.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	if statusChanged(current, status) {
		t.Error("another's condition, and times, count as a change")
	}
	current.Conditions[2].Reason = "Edited"
	if !statusChanged(current, status) {
		t.Error("a condition that somebody edited does not count as a change")
	}
}

func TestTransitions(t *testing.T) {
	at := func(seen observed) []metav1.Condition { return computeConditions(testApp(), seen) }
	running := observed{deployment: statusDeployment()}
	rolling := observed{deployment: statusDeployment(func(d *appsv1.Deployment) { d.Status.AvailableReplicas = 1 })}
	missing := observed{configMissing: true}
	cases := map[string]struct {
		reason    string
		old, next []metav1.Condition
		want      []string
	}{
		"New":         {"a start is no news before it is done", nil, at(rolling), nil},
		"Ready":       {"it is done", at(rolling), at(running), []string{"Normal Ready"}},
		"Same":        {"nothing new", at(running), at(running), nil},
		"Missing":     {"a dependency is missing from the start", nil, at(missing), []string{"Warning ConfigMapMissing"}},
		"StillGone":   {"said once", at(missing), at(missing), nil},
		"Found":       {"it has come", at(missing), at(rolling), []string{"Normal DependenciesFound"}},
		"Degraded":    {"something lasting", at(running), at(observed{err: invalid()}), []string{"Warning Invalid"}},
		"StillBroken": {"said once, whatever the text", at(observed{err: invalid()}), at(observed{err: invalid()}), nil},
		"OtherCause":  {"another reason is news", at(observed{err: invalid()}), at(observed{err: fieldConflict()}), []string{"Warning FieldConflict"}},
		"Passing":     {"an error that time mends is in the condition only", at(running), at(observed{err: errors.New("x")}), nil},
		"Namespace":   {"no Event can be created there", at(running), at(observed{err: namespaceIsTerminating()}), nil},
		"Draining":    {"the deletion begins", at(running), at(observed{draining: true}), []string{"Normal Draining"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, n := range transitions(tc.old, tc.next) {
				got = append(got, n.EventType+" "+n.Reason)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
