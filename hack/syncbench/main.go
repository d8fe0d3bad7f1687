// Command syncbench measures how long it takes, and what it takes, to fill the
// local copy of n ApplicationRoutes from a real API server: pkg/informer with
// Tolerant decoding, without and with Hearing, against client-go's own
// SharedIndexInformer on the typed client, by WatchList and by LIST.
//
//	go run ./hack/syncbench -n 50000 -rounds 5 > table.md
//
// Each run is a process of its own, this binary again with -as, so that CPU time
// and peak memory are that run's alone; the contestants take turns, since what
// else the machine does changes all the time. The objects are written straight to
// etcd. docs/measurements.md keeps results.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

func main() {
	var o options
	flag.IntVar(&o.n, "n", 50000, "ApplicationRoutes")
	flag.IntVar(&o.rounds, "rounds", 5, "how often each run is repeated")
	flag.IntVar(&o.bad, "bad", 0, "every bad-th object cannot be decoded, which only pkg/informer survives; 0: none")
	flag.BoolVar(&o.managedFields, "managed-fields", false, "give the objects managedFields")
	flag.DurationVar(&o.timeout, "timeout", 30*time.Minute, "for the whole measurement")
	as := flag.String("as", "", "used by the command itself: be this contestant")
	kubeconfig := flag.String("kubeconfig", "", "used by the command itself")
	flag.Parse()
	if err := o.check(); err != nil || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "syncbench:", err, flag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *as != "" {
		var m measured
		if m, err = contest(ctx, *as, *kubeconfig, o); err == nil {
			err = json.NewEncoder(os.Stdout).Encode(m)
		}
	} else {
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "syncbench:", err)
		stop()
		os.Exit(1)
	}
}

type options struct {
	n, rounds, bad int
	managedFields  bool
	timeout        time.Duration
}

func (o options) check() error {
	switch {
	case o.n <= 0 || o.rounds <= 0:
		return fmt.Errorf("-n=%d and -rounds=%d must be positive", o.n, o.rounds)
	case o.bad < 0:
		return fmt.Errorf("-bad=%d must not be negative", o.bad)
	}
	return nil
}

// good is how many objects can be decoded.
func (o options) good() int {
	if o.bad == 0 {
		return o.n
	}
	return o.n - (o.n+o.bad-1)/o.bad
}

func (o options) contestants() []string {
	return slices.DeleteFunc(slices.Clone(contestants), func(as string) bool { return o.bad > 0 && as == reference })
}

func run(ctx context.Context, o options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not done within -timeout=%s", o.timeout))
	defer cancel()
	cp, err := controlplane.Start(ctx, controlplane.Config{Build: true, Out: os.Stderr})
	if err != nil {
		return err
	}
	defer cp.Stop()
	binary, err := os.Executable()
	if err != nil {
		return err
	}
	results, err := measure(ctx, cp, binary, o, os.Stderr)
	if err != nil {
		return err
	}
	fmt.Print(table(o, results))
	return nil
}

// child is the command line of a run.
func (o options) child(as, kubeconfig string) []string {
	return []string{"-as", as, "-kubeconfig", kubeconfig, fmt.Sprintf("-n=%d", o.n), fmt.Sprintf("-bad=%d", o.bad), fmt.Sprintf("-timeout=%s", o.timeout)}
}

// table is Markdown. Ratios are of runs that followed each other, the median
// of them.
func table(o options, results map[string]map[string][]measured) string {
	var b strings.Builder
	b.WriteString("| sync by | with | wall | CPU | peak RSS | heap after it |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, mode := range modes {
		for _, as := range o.contestants() {
			runs := results[mode][as]
			cell := func(format string, value func(measured) float64) string {
				s := fmt.Sprintf(format, median(runs, func(i int) float64 { return value(runs[i]) }))
				if base := results[mode][reference]; as != reference && len(base) > 0 {
					s += fmt.Sprintf(" (%.2f ×)", median(runs, func(i int) float64 { return value(runs[i]) / value(base[i]) }))
				}
				return s
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", mode, as,
				cell("%.2f s", func(m measured) float64 { return m.Wall.Seconds() }), cell("%.2f s", func(m measured) float64 { return m.CPU.Seconds() }),
				cell("%.0f MiB", func(m measured) float64 { return m.PeakRSS / (1 << 20) }), cell("%.0f MiB", func(m measured) float64 { return m.Heap / (1 << 20) }))
		}
	}
	return b.String()
}

func median(runs []measured, value func(i int) float64) float64 {
	var values []float64
	for i := range runs {
		values = append(values, value(i))
	}
	slices.Sort(values)
	if n := len(values); n%2 == 0 {
		return (values[n/2-1] + values[n/2]) / 2
	}
	return values[len(values)/2]
}
