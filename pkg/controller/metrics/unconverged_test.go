package metrics_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/steadwatch/steadwatch/pkg/controller/metrics"
)

func TestUnconverged(t *testing.T) {
	n, known := 0, false
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.NewUnconverged("WebApp", func() (int, bool) { return n, known }))
	if count, err := testutil.GatherAndCount(registry); err != nil || count != 0 {
		t.Errorf("not known: %d samples, %v", count, err)
	}
	for _, value := range []string{"0", "3"} {
		known = true
		want := `
# HELP steadwatch_unconverged_objects Objects whose generation in the last audit is ahead of the observedGeneration in the local copy; not those that cannot be decoded or are being deleted. Absent before the first audit.
# TYPE steadwatch_unconverged_objects gauge
steadwatch_unconverged_objects{kind="WebApp"} ` + value + "\n"
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
		n = 3
	}
}
