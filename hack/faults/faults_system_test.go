package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
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

// missed are bounds that are known not to hold, each by how what it says begins. All
// else that a scenario checks has to hold; make faults fails for these too.
var missed = map[string]string{
	// A process that the canary had restarted while no watch works waits until its
	// WatchLists are refused for saying nothing, and what is changed meanwhile with it: 9 s
	// for 8 s on a machine with nothing else to do, whatever that allows for.
	"all-watches-dead": "from 26s on a change was acted on after ",
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
				if known := missed[name]; known != "" && strings.HasPrefix(p, known) {
					t.Logf("known: %s", p)
					continue
				}
				t.Errorf("%s: %s", scenarios[0].fault, p)
			}
			t.Logf("said: %s; acted on after %s; LIST / WatchList / WATCH / questions / audits %s", heard(r.sights, r.began), r.ours, r.requests)
		})
	}
}
