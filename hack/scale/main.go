// Command scale measures the controller on a private control plane: n WebApps
// from nothing, then a restart with all of them there.
//
//	go run ./hack/scale -n 5000 > table.md
//	go run ./hack/scale -n 5000 -kube-api-qps 1000 -kube-api-burst 2000
//
// It runs the controller's binary under the manifests' ServiceAccount against
// etcd and kube-apiserver alone, so that every write beside the ones that make
// the objects is the controller's. Numbers come from the API server's audit log
// and from the controller's own /metrics. docs/measurements.md keeps results.
//
// The command fails if an object took more than 4 writes, or one of them twice.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

func main() {
	var o options
	flag.IntVar(&o.n, "n", 5000, "WebApps")
	flag.IntVar(&o.namespaces, "namespaces", 10, "namespaces that they are spread over, each with a ConfigMap that all of its WebApps refer to")
	flag.IntVar(&o.configBytes, "config-bytes", 1024, "size of each ConfigMap's data")
	flag.Float64Var(&o.qps, "kube-api-qps", 0, "given to the controller; 0: its default")
	flag.IntVar(&o.burst, "kube-api-burst", 0, "given to the controller; 0: its default")
	flag.IntVar(&o.workers, "workers", 0, "given to the controller; 0: its default")
	flag.DurationVar(&o.timeout, "timeout", 30*time.Minute, "for the whole measurement")
	flag.Parse()
	if err := o.check(); err != nil || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "scale:", err, flag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not done within -timeout=%s", o.timeout))
	defer cancel()
	cp, err := controlplane.Start(ctx, controlplane.Config{Audit: true, Build: true, Out: os.Stderr})
	if err != nil {
		return err
	}
	defer cp.Stop()
	r, err := measure(ctx, cp, o, os.Stderr)
	if err != nil {
		return err
	}
	r.print(os.Stdout, o)
	return r.check()
}

type options struct {
	n, namespaces, configBytes int
	qps                        float64
	burst, workers             int
	timeout                    time.Duration
}

func (o options) check() error {
	switch {
	case o.n <= 0:
		return fmt.Errorf("-n=%d: must be positive", o.n)
	case o.namespaces <= 0 || o.namespaces > o.n:
		return fmt.Errorf("-namespaces=%d: must be positive and not above -n", o.namespaces)
	case o.configBytes < 0 || o.configBytes > 1<<20:
		return fmt.Errorf("-config-bytes=%d: a ConfigMap holds up to 1048576", o.configBytes)
	case o.qps < 0 || o.burst < 0 || o.workers < 0:
		return fmt.Errorf("-kube-api-qps, -kube-api-burst and -workers must not be negative")
	}
	return nil
}

// flags are those of the controller that differ from their defaults.
func (o options) flags() []string {
	var flags []string
	if o.qps > 0 {
		flags = append(flags, fmt.Sprintf("--kube-api-qps=%g", o.qps))
	}
	if o.burst > 0 {
		flags = append(flags, fmt.Sprintf("--kube-api-burst=%d", o.burst))
	}
	if o.workers > 0 {
		flags = append(flags, fmt.Sprintf("--workers=%d", o.workers))
	}
	return flags
}
