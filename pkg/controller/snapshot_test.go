package controller_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

func TestLedgerIsShownInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := &script{do: func(_ context.Context, k cache.ObjectName, _ int) (controller.Result, error) {
			time.Sleep(time.Second)
			switch k.Name {
			case "fails":
				return controller.Result{}, errors.New(strings.Repeat("é", 2000))
			case "waits":
				return controller.Result{After: time.Minute, Reason: "certificate is not ready"}, nil
			}
			return controller.Result{}, nil
		}}
		r := start(t, controller.Config{Reconciler: s, RetryBaseDelay: 10 * time.Second, Workers: 3})
		defer r.finish()
		r.Enqueue(controller.Normal, key("fails"), key("waits"), cache.NewObjectName("", "done"))
		sleep(2 * time.Second)
		r.Enqueue(controller.Urgent, key("runs"))
		synctest.Wait()

		all, more := r.Keys(10, cache.ObjectName{})
		if more || len(all) != 4 {
			t.Fatalf("got %d entries, more %v", len(all), more)
		}
		if e := all[1].Error; len(e) > 1100 || !strings.HasSuffix(e, "é…") {
			t.Errorf("error text of %d bytes is not cut cleanly", len(e))
		}
		if d := all[1].NotBefore.Sub(began.Add(time.Second)); !within(d, 10*time.Second) {
			t.Errorf("fails waits for %s", d)
		}
		all[1].Error, all[1].NotBefore = "", time.Time{}
		ran := began.Add(time.Second)
		want := []controller.KeyState{
			{Key: "done", State: "Idle", Since: ran, Class: controller.ClassDone, LastRun: ran, DurationSeconds: 1},
			{Key: "ns/fails", State: "Waiting", Since: ran, Attempts: 1, FailingSince: ran, Class: controller.ClassRetry, LastRun: ran, DurationSeconds: 1},
			{Key: "ns/runs", State: "Processing", Since: began.Add(2 * time.Second)},
			{Key: "ns/waits", State: "Waiting", Since: ran, NotBefore: ran.Add(time.Minute), Class: controller.ClassWait,
				Reason: "certificate is not ready", LastRun: ran, DurationSeconds: 1},
		}
		if diff := cmp.Diff(want, all); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		page, more := r.Keys(2, cache.NewObjectName("ns", "fails"))
		if more || len(page) != 2 || page[0].Key != "ns/runs" {
			t.Errorf("second page: %v, more %v", page, more)
		}
		if page, more = r.Keys(1, cache.NewObjectName("ns", "fails")); !more || len(page) != 1 {
			t.Errorf("limited page: %v, more %v", page, more)
		}
		wantTotals := controller.Snapshot{Controller: "test", Running: true,
			Workers: controller.Workers{Size: 3, Running: 3}, Processing: 1, Waiting: 2, Failing: 1, OldestFailingSeconds: 1}
		if diff := cmp.Diff(wantTotals, r.Snapshot()); diff != "" {
			t.Errorf("totals (-want +got):\n%s", diff)
		}
	})
}
