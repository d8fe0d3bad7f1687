package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/install"
)

// instance is one run of the controller.
type instance struct {
	*controlplane.Program
	metrics, debug string // addresses
	began          time.Time
}

// startController starts the controller and waits until its workers run.
func startController(ctx context.Context, cp *controlplane.ControlPlane, name, binary, kubeconfig string, flags []string) (*instance, error) {
	began := time.Now()
	program, err := cp.StartProgram(name, binary, append([]string{
		"--kubeconfig=" + kubeconfig, "--leader-election-namespace=" + install.Namespace,
		"--health-probe-bind-address=0", "--metrics-bind-address=127.0.0.1:0", "--debug-bind-address=127.0.0.1:0",
	}, flags...)...)
	if err != nil {
		return nil, err
	}
	c := &instance{Program: program, began: began}
	return c, c.Until(ctx, "the controller to lead", func() (bool, string) {
		at := install.Serving(c.Log())
		c.metrics, c.debug = at.Metrics, at.Debug
		page, err := c.scrape(ctx)
		if err != nil {
			return false, err.Error()
		}
		return page.value("steadwatch_workers", "state", "running") > 0, "no workers yet"
	})
}

func get(ctx context.Context, url string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return response.Body, nil
}

// page is one scrape.
type page map[string]*dto.MetricFamily

func (c *instance) scrape(ctx context.Context) (page, error) {
	body, err := get(ctx, "http://"+c.metrics+"/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(body)
}

// atRest scrapes after garbage has been collected.
func (c *instance) atRest(ctx context.Context) (page, error) {
	// Two rounds: what finalizers hold goes in the second.
	for range 2 {
		body, err := get(ctx, "http://"+c.debug+"/debug/pprof/heap?gc=1")
		if err != nil {
			return nil, err
		}
		_, err = io.Copy(io.Discard, body)
		body.Close()
		if err != nil {
			return nil, err
		}
	}
	return c.scrape(ctx)
}

// value sums the series of a counter or gauge that have the label, if one is given.
func (p page) value(name string, label ...string) float64 {
	sum := 0.0
	for _, m := range p.series(name, label...) {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum
}

func (p page) series(name string, label ...string) []*dto.Metric {
	var found []*dto.Metric
	for _, m := range p[name].GetMetric() {
		if len(label) == 2 && labelOf(m, label[0]) != label[1] {
			continue
		}
		found = append(found, m)
	}
	return found
}

func labelOf(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// mean of a histogram.
func (p page) mean(name string) float64 {
	sum, count := 0.0, 0.0
	for _, m := range p.series(name) {
		sum += m.GetHistogram().GetSampleSum()
		count += float64(m.GetHistogram().GetSampleCount())
	}
	if count == 0 {
		return 0
	}
	return sum / count
}

// quantile is an upper bound, in seconds: that of the bucket it falls in.
func (p page) quantile(name string, q float64) float64 {
	for _, m := range p.series(name) {
		h := m.GetHistogram()
		for _, b := range h.GetBucket() {
			if float64(b.GetCumulativeCount()) >= q*float64(h.GetSampleCount()) {
				return b.GetUpperBound()
			}
		}
	}
	return 0
}
