package metrics

import "github.com/prometheus/client_golang/prometheus"

// NewUnconverged returns a collector that asks count when it is scraped how many
// objects of a kind have a newer generation than their controller has reported on,
// as informer.Informer.Unconverged does. There is no sample while that is not known.
func NewUnconverged(kind string, count func() (n int, known bool)) prometheus.Collector {
	return &unconverged{
		desc: prometheus.NewDesc("steadwatch_unconverged_objects",
			"Objects whose generation in the last audit is ahead of the observedGeneration in the local copy; not those that cannot be decoded or are being deleted. Absent before the first audit.",
			nil, prometheus.Labels{"kind": kind}),
		count: count,
	}
}

type unconverged struct {
	desc  *prometheus.Desc
	count func() (int, bool)
}

func (u *unconverged) Describe(ch chan<- *prometheus.Desc) { ch <- u.desc }

func (u *unconverged) Collect(ch chan<- prometheus.Metric) {
	if n, known := u.count(); known {
		ch <- prometheus.MustNewConstMetric(u.desc, prometheus.GaugeValue, float64(n))
	}
}
