package webapp

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
	"github.com/steadwatch/steadwatch/pkg/controller/undecodable"
)

// Decodable is turned back once a WebApp can be decoded again, and is not there at
// all on one that always could.
func TestDecodableTurnsBack(t *testing.T) {
	seen := observed{deployment: statusDeployment()}
	then, now := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	status := computeStatus(testApp(), seen, then)
	if c := meta.FindStatusCondition(status.Conditions, undecodable.Condition); c != nil {
		t.Fatalf("a WebApp that was never bad has %+v", c)
	}

	bad := testApp(func(app *v1alpha1.WebApp) {
		app.Status = *status
		app.Status.Conditions = append(app.Status.Conditions, metav1.Condition{Type: undecodable.Condition,
			Status: metav1.ConditionFalse, Reason: undecodable.ReasonUndecodable, Message: "x", ObservedGeneration: app.Generation, LastTransitionTime: then})
	})
	mended := computeStatus(bad, seen, now)
	want := &metav1.Condition{Type: undecodable.Condition, Status: metav1.ConditionTrue, Reason: undecodable.ReasonDecoded,
		ObservedGeneration: bad.Generation, LastTransitionTime: now}
	if diff := cmp.Diff(want, meta.FindStatusCondition(mended.Conditions, undecodable.Condition)); diff != "" || !statusChanged(&bad.Status, mended) {
		t.Errorf("after it is mended (-want +got):\n%s", diff)
	}
	if got := transitions(bad.Status.Conditions, mended.Conditions); len(got) != 1 || got[0].Reason != undecodable.ReasonDecoded {
		t.Errorf("news of the mending: %+v", got)
	}

	good := testApp(func(app *v1alpha1.WebApp) { app.Status = *mended })
	if again := computeStatus(good, seen, metav1.Now()); statusChanged(mended, again) || len(transitions(mended.Conditions, again.Conditions)) > 0 {
		t.Errorf("the next pass has something to write: %s", cmp.Diff(mended, again))
	}
}
