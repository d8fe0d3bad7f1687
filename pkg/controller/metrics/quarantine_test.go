package metrics_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/steadwatch/steadwatch/pkg/controller/metrics"
)

func TestQuarantine(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(metrics.NewCollector([]metrics.Informer{
		fakeInformer{Resource: "webapps.platform.tejo.dev", Quarantined: 2, QuarantinedTotal: 5, Unreadable: 1},
		fakeInformer{Resource: "services"},
	}, nil))
	wantSeries(t, registry, `
# HELP steadwatch_quarantined_objects Objects that cannot be decoded now and are set aside; /debug/quarantine names them.
# TYPE steadwatch_quarantined_objects gauge
steadwatch_quarantined_objects{resource="services"} 0
steadwatch_quarantined_objects{resource="webapps.platform.tejo.dev"} 2
# HELP steadwatch_quarantined_total Times that an object has been set aside because it cannot be decoded.
# TYPE steadwatch_quarantined_total counter
steadwatch_quarantined_total{resource="services"} 0
steadwatch_quarantined_total{resource="webapps.platform.tejo.dev"} 5
# HELP steadwatch_unreadable_total Objects left out because not even their name can be read.
# TYPE steadwatch_unreadable_total counter
steadwatch_unreadable_total{resource="services"} 0
steadwatch_unreadable_total{resource="webapps.platform.tejo.dev"} 1
`, "steadwatch_quarantined_objects", "steadwatch_quarantined_total", "steadwatch_unreadable_total")
}
