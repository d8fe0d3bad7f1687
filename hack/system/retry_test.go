package system_test

import (
	"testing"
	"time"

	"github.com/steadwatch/steadwatch/hack/faultproxy"
	"github.com/steadwatch/steadwatch/pkg/apis/platform/v1alpha1"
)

// R56: what fails after its first step is tried again ever more slowly, and told
// once.
func TestFailureBacksOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := w.proxy()
	p := w.start(proxy)
	since := time.Now()
	fault := proxy.Add(faultproxy.Rule{Match: applyService, Answer: &faultproxy.Answer{Code: 500}})
	w.create(newApp("web"))
	w.reached(fault, "the first try")
	w.pass(15 * time.Second)
	tries, writes := fault.Hits(), w.writes(since)
	// 0.1 s, doubled each time: the eighth is due after 12.7 s.
	if tries < 4 || tries > 10 {
		t.Errorf("%d tries in 15 s", tries)
	}
	if got := writes["patch deployments web"]; got != 1 {
		t.Errorf("the step before it was made %d times", got)
	}
	if got := writes["patch webapps/status web"]; got > 4 {
		t.Errorf("the status was written %d times about one failure", got)
	}
	if got := writes["create events"] + writes["patch events"]; got > 3 {
		t.Errorf("%d writes of Events: %v", got, writes)
	}
	fault.Remove()
	w.condition("web", v1alpha1.ConditionReady, "True Available")
	p.settles()
}
