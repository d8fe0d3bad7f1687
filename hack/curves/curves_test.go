package curves

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/steadwatch/steadwatch/pkg/controller"
)

var update = flag.Bool("update", false, "measure in full and write docs/queue/*.svg")

func write(t *testing.T, name string, p *plot) {
	t.Helper()
	drawn := p.svg()
	for _, l := range p.lines {
		t.Logf("%s, %s: %v", name, l.label, l.points)
		if len(l.points) == 0 {
			t.Errorf("%s: nothing was measured", l.label)
		}
	}
	if !*update {
		return
	}
	path := filepath.Join("..", "..", "docs", "queue", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(drawn), 0o644); err != nil {
		t.Fatal(err)
	}
}

// full returns whole where everything is measured, else the small form.
func full[T any](whole, small T) T {
	if *update {
		return whole
	}
	return small
}

func with(cfg controller.Config) func(*testing.T, reconcile) queue {
	return func(t *testing.T, f reconcile) queue { return ours(t, cfg, f) }
}

func clientGo(workers int) func(*testing.T, reconcile) queue {
	return func(_ *testing.T, f reconcile) queue { return plain(workers, f) }
}

func TestRecovery(t *testing.T) {
	p := &plot{
		title: "Recovery of 2,000 objects from an outage of 20 minutes", x: "after the end of the outage", y: "objects that have succeeded", percent: true,
		xTicks: []tick{{1, "1 s"}, {10, "10 s"}, {30, "30 s"}, {60, "1 min"}, {300, "5 min"}, {900, "15 min"}, {3600, "1 h"}},
		yTicks: []tick{{0, "0"}, {25, "25 %"}, {50, "50 %"}, {75, "75 %"}, {100, "100 %"}},
	}
	n, outage := full(2000, 200), full(20*time.Minute, 4*time.Minute)
	add := func(label string, dashed bool, run func(*testing.T, reconcile) queue) time.Duration {
		times := afterOutage(t, n, outage, run)
		l := line{label: label, dashed: dashed}
		for i, took := range times {
			if i%max(n/100, 1) == 0 || i == n-1 {
				l.points = append(l.points, point{took.Seconds(), 100 * float64(i+1) / float64(n)})
			}
		}
		p.lines = append(p.lines, l)
		return times[n-1]
	}
	for _, limit := range []time.Duration{10 * time.Second, 30 * time.Second, 2 * time.Minute, 5 * time.Minute} {
		took := add("max-delay "+brief(limit), false, with(controller.Config{RetryMaxDelay: limit}))
		if allowed := limit*11/10 + time.Duration(n)*10*time.Millisecond/4 + time.Second; took > allowed {
			t.Errorf("with a cap of %s all had succeeded after %s, want at most %s", limit, took, allowed)
		}
	}
	add("client-go's default", true, clientGo(4))
	write(t, "recovery.svg", p)
}

func TestHiccup(t *testing.T) {
	p := &plot{
		title: "A failure of a dependency, and the wait that follows it", x: "how long the dependency fails", y: "mean wait after that",
		xTicks: []tick{{0.1, "0.1 s"}, {1, "1 s"}, {10, "10 s"}, {60, "1 min"}, {600, "10 min"}, {3600, "1 h"}},
		yTicks: []tick{{0.01, "10 ms"}, {0.1, "0.1 s"}, {1, "1 s"}, {10, "10 s"}, {60, "1 min"}, {600, "10 min"}},
	}
	// So few that the bucket of all keys does not count.
	const n = 5
	phases := full(20, 2)
	hiccups := full([]float64{0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 40, 60, 120, 300, 600, 1200, 2400, 3600}, []float64{1, 60, 600})
	add := func(label string, dashed bool, limit time.Duration, run func(*testing.T, reconcile) queue) {
		l := line{label: label, dashed: dashed}
		for _, s := range hiccups {
			var mean time.Duration // over retries at all phases
			for phase := range phases {
				length := s * (0.8 + 0.4*(float64(phase)+0.5)/float64(phases))
				mean += afterHiccup(t, n, time.Duration(length*float64(time.Second)), run) / time.Duration(phases)
			}
			l.points = append(l.points, point{s, mean.Seconds()})
			if limit > 0 && mean > limit {
				t.Errorf("%s: after %v s keys wait %s on average, above the cap", label, s, mean)
			}
		}
		p.lines = append(p.lines, l)
	}
	for _, base := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		add("base-delay "+brief(base), false, 33*time.Second, with(controller.Config{RetryBaseDelay: base}))
	}
	add("client-go's default", true, 0, clientGo(4))
	write(t, "hiccup.svg", p)
}

func TestLoad(t *testing.T) {
	p := &plot{
		title: "Retries while a dependency fails", x: "objects that fail", y: "retries a second, all together",
		xTicks: []tick{{1, "1"}, {10, "10"}, {100, "100"}, {1000, "1,000"}, {10000, "10,000"}},
		yTicks: []tick{{0.001, "0.001"}, {0.01, "0.01"}, {0.1, "0.1"}, {1, "1"}, {10, "10"}, {100, "100"}, {1000, "1,000"}},
	}
	counts := full([]int{1, 3, 10, 30, 100, 200, 300, 500, 1000, 3000, 10000}, []int{10, 600})
	for _, cfg := range []controller.Config{
		{RetryMaxDelay: 10 * time.Second, RetryQPS: 10},
		{RetryMaxDelay: 30 * time.Second, RetryQPS: 10},
		{RetryMaxDelay: 5 * time.Minute, RetryQPS: 10},
		{RetryMaxDelay: 5 * time.Minute, RetryQPS: 1},
	} {
		l := line{label: fmt.Sprintf("max-delay %s, qps %v", brief(cfg.RetryMaxDelay), cfg.RetryQPS)}
		for _, n := range counts {
			rate := retryRate(t, n, cfg)
			l.points = append(l.points, point{float64(n), rate})
			if least := 0.8 * float64(n) / cfg.RetryMaxDelay.Seconds(); rate < least {
				t.Errorf("%s: %d keys are retried at %v/s, want at least %v/s: the delay wins over the rate", l.label, n, rate, least)
			}
		}
		p.lines = append(p.lines, l)
	}
	write(t, "load.svg", p)
}

func TestEdit(t *testing.T) {
	p := &plot{
		title: "An edit while 10,000 objects of an initial list are worked off", x: "--workers", y: "longest wait of an edit",
		xTicks: []tick{{1, "1"}, {2, "2"}, {4, "4"}, {8, "8"}, {16, "16"}, {32, "32"}},
		yTicks: []tick{{0.01, "10 ms"}, {0.1, "0.1 s"}, {1, "1 s"}, {10, "10 s"}, {60, "1 min"}, {1000, "1,000 s"}},
	}
	n := full(10_000, 300)
	lanes, fifo := line{label: "Urgent lane"}, line{label: "client-go's queue", dashed: true}
	for _, workers := range full([]int{1, 2, 4, 8, 16, 32}, []int{1, 4}) {
		mine := editWait(t, n, with(controller.Config{Workers: workers}))
		theirs := editWait(t, n, clientGo(workers))
		lanes.points = append(lanes.points, point{float64(workers), mine.Seconds()})
		fifo.points = append(fifo.points, point{float64(workers), theirs.Seconds()})
		if mine > 100*time.Millisecond {
			t.Errorf("with %d workers an edit waits %s, want the next free worker", workers, mine)
		}
	}
	p.lines = []line{lanes, fifo}
	write(t, "edit.svg", p)
}

// brief is d without the zero seconds.
func brief(d time.Duration) string {
	if d >= time.Minute {
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}
