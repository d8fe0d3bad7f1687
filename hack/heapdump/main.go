// Command heapdump looks for the data of Secrets in the memory of the controller, on a
// private control plane:
//
//	go run ./hack/heapdump          # or: make heapdump
//
// It runs the controller's binary with --tls-secrets under the manifests'
// ServiceAccount, lets ApplicationRoutes refer to Secrets of 1 MiB, and searches all
// that the process can write to for a pattern that is in every one of them: while they
// come, and in a process that is started when they are there. It fails if the pattern is
// found, or if the heap has grown by what Secrets weigh. docs/measurements.md keeps a
// result.
//
// A Secret that kubectl has applied repeats its data in an annotation, which passes
// through the controller's memory. How much of that is left is measured apart, with a
// pattern of its own, and no reason to fail.
//
// # Caveats
//
// On Linux only, as a user who may trace the controller: the memory is read from
// /proc/PID/mem while the process stands still.
//
// Data that was compressed, encrypted or encoded otherwise than by base64 is not
// recognised.
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
	flag.IntVar(&o.secrets, "secrets", 90, "Secrets, each with an ApplicationRoute that refers to it")
	flag.IntVar(&o.bytes, "bytes", 1<<20, "size of each one's data; the API server takes 1048576 at most")
	flag.DurationVar(&o.timeout, "timeout", 10*time.Minute, "for the whole measurement")
	flag.Parse()
	if err := o.check(); err != nil || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "heapdump:", err, flag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "heapdump:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("not done within -timeout=%s", o.timeout))
	defer cancel()
	cp, err := controlplane.Start(ctx, controlplane.Config{Build: true, Out: os.Stderr})
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
	secrets, bytes int
	timeout        time.Duration
}

func (o options) check() error {
	switch {
	case o.secrets <= 0:
		return fmt.Errorf("-secrets=%d: must be positive", o.secrets)
	case o.bytes < 4096 || o.bytes > 1<<20:
		return fmt.Errorf("-bytes=%d: between 4096 and 1048576", o.bytes)
	}
	return nil
}
