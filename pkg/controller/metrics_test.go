package controller_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

// provider keeps workqueue metrics by "name metric".
type provider struct{ box[map[string]float64] }

type metric struct {
	p    *provider
	name string
}

func (m metric) add(d float64)     { m.p.with(func(v *map[string]float64) { (*v)[m.name] += d }) }
func (m metric) Inc()              { m.add(1) }
func (m metric) Dec()              { m.add(-1) }
func (m metric) Observe(float64)   { m.add(1) }
func (m metric) Set(value float64) { m.p.with(func(v *map[string]float64) { (*v)[m.name] = value }) }

func (p *provider) metric(name, what string) metric {
	m := metric{p, name + " " + what}
	m.add(0)
	return m
}
func (p *provider) NewDepthMetric(n string) workqueue.GaugeMetric     { return p.metric(n, "depth") }
func (p *provider) NewAddsMetric(n string) workqueue.CounterMetric    { return p.metric(n, "adds") }
func (p *provider) NewRetriesMetric(n string) workqueue.CounterMetric { return p.metric(n, "retries") }
func (p *provider) NewLatencyMetric(n string) workqueue.HistogramMetric {
	return p.metric(n, "latency")
}
func (p *provider) NewWorkDurationMetric(n string) workqueue.HistogramMetric {
	return p.metric(n, "work")
}
func (p *provider) NewUnfinishedWorkSecondsMetric(n string) workqueue.SettableGaugeMetric {
	return p.metric(n, "unfinished")
}
func (p *provider) NewLongestRunningProcessorSecondsMetric(n string) workqueue.SettableGaugeMetric {
	return p.metric(n, "longest")
}

func (p *provider) values() (v map[string]float64) {
	p.with(func(m *map[string]float64) { v = maps.Clone(*m) })
	return v
}

// Name and provider have to reach the delaying and the inner queue, and what a
// shutdown drops must not stay in the gauges.
func TestWorkqueueMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &provider{}
		p.set(map[string]float64{})
		block := make(chan struct{})
		s := &script{do: func(_ context.Context, k cache.ObjectName, n int) (controller.Result, error) {
			if k.Name == "fails" && n == 1 {
				return controller.Result{}, io.EOF
			}
			if k.Name == "blocks" {
				<-block
			}
			return controller.Result{}, nil
		}}
		r := start(t, controller.Config{Name: "webapp", Reconciler: s, Workers: 1, MetricsProvider: p})
		r.Enqueue(controller.Normal, key("fails"))
		sleep(time.Second)
		r.Enqueue(controller.Normal, key("blocks"))
		synctest.Wait()
		r.Enqueue(controller.Normal, keys("ns", 10)...)
		sleep(10 * time.Second)
		got := p.values()
		if got["webapp longest"] < 9 {
			t.Errorf("longest running processor: %v s after 10 s", got["webapp longest"])
		}
		delete(got, "webapp longest")
		delete(got, "webapp unfinished")
		want := map[string]float64{"webapp depth": 10, "webapp adds": 13, "webapp retries": 1, "webapp latency": 3, "webapp work": 2}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}

		r.cancel(nil)
		synctest.Wait()
		close(block)
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		got = p.values()
		for _, gauge := range []string{"depth", "unfinished", "longest"} {
			if v := got["webapp "+gauge]; v != 0 {
				t.Errorf("%s is %v after the shutdown, want 0", gauge, v)
			}
		}
		if n := len(s.sequence()); n != 3 {
			t.Errorf("%d passes, want 3: the queued keys were to be dropped", n)
		}
	})
}

// Without a provider not even client-go's global one is used, and a name alone
// makes no goroutine.
func TestNoMetricsWithoutProvider(t *testing.T) {
	p := &provider{}
	p.set(map[string]float64{})
	workqueue.SetProvider(p)
	synctest.Test(t, func(t *testing.T) {
		r := start(t, controller.Config{Reconciler: &script{}})
		r.Enqueue(controller.Normal, key("a"))
		synctest.Wait()
		r.finish()
	})
	if got := p.values(); len(got) != 0 {
		t.Errorf("metrics went to the global provider: %s", fmt.Sprint(got))
	}
}
