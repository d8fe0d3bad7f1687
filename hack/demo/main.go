// Command demo goes from nothing to a Ready WebApp on a private control plane
// and says at each step what happens and why. It runs on until Ctrl-C and leaves
// nothing behind.
//
//	go run ./hack/demo          # or: make demo
//	go run ./hack/demo -once    # end after the last step
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
	"github.com/steadwatch/steadwatch/hack/install"
)

func main() {
	once := flag.Bool("once", false, "end after the last step instead of waiting for Ctrl-C")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := install.Root()
	if err == nil {
		err = run(ctx, root, *once, narrator{out: os.Stdout, start: time.Now()})
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string, once bool, n narrator) error {
	n.step("Starting a real control plane: etcd, kube-apiserver, controller-manager, scheduler, kwok.",
		"The first time its binaries are compiled from Go modules, which takes about 15 minutes on 2 cores;",
		"they are kept in your cache folder. kwok pretends to be two nodes: no container is really run.")
	cp, err := controlplane.Start(ctx, controlplane.Config{Full: true, Build: true, Out: n})
	if err != nil {
		return err
	}
	defer cp.Stop()
	return tell(ctx, cp, root, once, n)
}
