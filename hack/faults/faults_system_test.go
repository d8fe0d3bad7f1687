package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/install"
)

func TestMain(m *testing.M) {
	flag.Parse()
	// Scenarios wait, most of the time.
	if parallel := flag.Lookup("test.parallel"); parallel.Value.(flag.Getter).Get().(int) < 32 {
		_ = parallel.Value.Set("32")
	}
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// tested are the scenarios that run with the tests, shortened.
var tested = []string{
	"all-watches-dead", "etcd-restored", "rolling-restart", // The longest first.
	"initial-end-stripped-start", "buffered", "one-watch-frozen", "half-dead-connection", "opaque-versions",
	"eof-at-once", "410-always", "410-once", "throttled", "refused", "busy", "lease-forbidden", "lives",
}

func TestFaults(t *testing.T) {
	root, err := install.Root()
	if err != nil {
		t.Fatal(err)
	}
	l, err := newLab(context.Background(), root, true, false, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	if _, err := l.sharedPlane(); errors.Is(err, controlplane.ErrNoBinaries) && os.Getenv("CI") != "true" {
		t.Skipf("skipped, no control plane: %v", err)
	}
	if err := l.startControl(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.endControl() })
	for _, name := range tested {
		scenarios, err := choose(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, err := l.run(t.Context(), scenarios[0])
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range r.problems {
				t.Errorf("%s: %s", scenarios[0].fault, p)
			}
			t.Logf("said: %s; acted on after %s; LIST / WatchList / WATCH / questions / audits %s", heard(r.sights, r.began), r.ours, r.requests)
		})
	}
}
