package system_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/steadwatch/steadwatch/hack/faultproxy"
)

// A process that ends between two writes leaves the rest to the next one, which
// makes nothing anew.
func TestKilledBetweenTwoWrites(t *testing.T) {
	cases := map[string]struct {
		reason string
		before faultproxy.Match // the write that is not made
		// missing are writes that the next process has to make.
		missing []string
	}{
		"AfterTheChildren":   {"only the status is missing", applyStatus, []string{"patch webapps/status web"}},
		"AfterTheDeployment": {"it is there, and is ours", applyService, []string{"patch services web", "patch webapps/status web"}},
		"AfterTheFinalizer":  {"there is no child yet", applyDeployment, []string{"patch deployments web", "patch services web", "patch webapps/status web"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			proxy := w.proxy()
			p := w.start(proxy, alone)
			seen := w.recordEffects()
			since := time.Now()
			held := hold(proxy, 0, tc.before)
			w.create(newApp("web"))
			w.reached(held.Fault, "the write before which the process ends")
			p.Stop(0)
			held.Remove()
			restarted := time.Now()
			p = w.start(proxy, alone)
			w.ready("web")
			p.settles()

			all, again := w.writes(since), w.writes(restarted)
			for _, write := range []string{"patch webapps web", "patch deployments web", "patch services web"} {
				if all[write] != 1 {
					t.Errorf("%s: %q was made %d times: %v", tc.reason, write, all[write], all)
				}
			}
			for _, write := range tc.missing {
				if again[write] == 0 {
					t.Errorf("%s: the next process did not %s: %v", tc.reason, write, again)
				}
			}
			if d, s := len(distinct(seen.deployments.all())), len(distinct(seen.services.all())); d != 1 || s != 1 {
				t.Errorf("%s: %d versions of the Deployment and %d of the Service, want 1 each", tc.reason, d, s)
			}
		})
	}
}

// A shutdown with much to do finishes what is under way and no more; the next
// process does the rest, and nothing twice.
func TestShutdownWithQueuedWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := w.proxy()
	p := w.start(proxy)
	seen := w.recordEffects()
	slow := proxy.Add(faultproxy.Rule{Match: faultproxy.Match{Verbs: []string{"patch"}}, Delay: 300 * time.Millisecond})
	since := time.Now()
	const n = 50
	for i := range n {
		w.create(newApp(fmt.Sprintf("web-%d", i)))
	}
	w.eventually(patience, "some of the work to be done", func() (bool, string) {
		return len(seen.services.all()) >= 4, fmt.Sprintf("%d Services", len(seen.services.all()))
	})
	asked := time.Now()
	if code := p.Stop(patience); code != 0 {
		t.Fatalf("the controller ended with %d:\n%s", code, p.Log())
	}
	if took := time.Since(asked); took > 15*time.Second {
		t.Errorf("it took %s to finish 4 passes", took)
	}
	if done := len(distinct(seen.services.all())); done == n {
		t.Fatal("nothing was left to do: this test shows nothing")
	} else {
		t.Logf("%d of %d Services at shutdown", done, n)
	}
	slow.Remove()
	p = w.start(proxy)
	w.allReady(n)
	p.settles()
	writes := w.writes(since)
	for i := range n {
		for _, write := range []string{"patch webapps web-%d", "patch deployments web-%d", "patch services web-%d"} {
			if write = fmt.Sprintf(write, i); writes[write] != 1 {
				t.Errorf("%q was made %d times", write, writes[write])
			}
		}
	}
}
