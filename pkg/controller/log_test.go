package controller_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

// One grep finds a key's story, and an outage does not drown it: a key that fails
// for ten minutes is worth a line at its 1st, 2nd, 4th, 8th and 16th failure.
func TestR56_LogLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines box[[]string]
		logger := funcr.New(func(_, args string) {
			lines.with(func(l *[]string) { *l = append(*l, args) })
		}, funcr.Options{})
		c, err := controller.New(controller.Config{Name: "webapp",
			Keys: func() []cache.ObjectName { return []cache.ObjectName{key("a")} },
			Reconciler: controller.ReconcilerFunc(func(ctx context.Context, _ cache.ObjectName) (controller.Result, error) {
				klog.FromContext(ctx).Info("inside")
				return controller.Result{}, io.EOF
			})})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(klog.NewContext(t.Context(), logger), 10*time.Minute)
		defer cancel()
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
		failed, inside, all := 0, 0, lines.get()
		for _, line := range all {
			for _, part := range []string{`"controller"="webapp"`, `"name"="a"`, `"reconcileID"="`, `"attempt"=`} {
				if strings.Contains(line, "inside") && !strings.Contains(line, part) {
					t.Fatalf("line %s lacks %s", line, part)
				}
			}
			switch {
			case strings.Contains(line, "Reconcile failed"):
				failed++
				if !strings.Contains(line, `"class"="Retry"`) || !strings.Contains(line, `"error"="EOF"`) {
					t.Errorf("line does not tell class and error: %s", line)
				}
			case strings.Contains(line, "inside"):
				inside++
			}
		}
		if inside < 25 || failed != 5 {
			t.Errorf("%d passes made %d lines at level 0, want 5:\n%s", inside, failed, strings.Join(all, "\n"))
		}
	})
}
