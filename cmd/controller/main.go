// Command controller runs the Steadwatch controllers.
//
// main.go reads flags and signals, run.go puts everything together. leader.go,
// lease.go and fence.go make sure that at most one process writes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"k8s.io/klog/v2"
)

// version is set by -ldflags "-X main.version=v1.2.3".
var version string

// Exit codes.
const (
	exitFailed  = 1 // could not go on, or workers outlived the shutdown
	exitRefused = 2 // a flag made no sense, nothing was started
)

func main() {
	klog.FlushAndExit(klog.ExitFlushTimeout, realMain(os.Args[1:]))
}

func realMain(args []string) int {
	o, err := parseOptions(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		o.printUsage(os.Stdout)
		return 0
	case err != nil:
		return fail(exitRefused, err)
	case o.printVersion:
		fmt.Printf("steadwatch %s (%s, %s/%s)\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return 0
	}
	if o.loggingFormat == "json" {
		klog.SetLoggerWithOptions(jsonLogger(os.Stderr, o.flags.Lookup("v").Value.String()), klog.ContextualLogger(true))
	}
	ctx := untilSignal(klog.NewContext(context.Background(), klog.Background()))
	switch err := run(ctx, o); {
	case errors.As(err, new(*flagError)):
		return fail(exitRefused, err)
	case err != nil:
		return fail(exitFailed, err)
	}
	return 0
}

func fail(code int, err error) int {
	fmt.Fprintln(os.Stderr, "controller:", err)
	return code
}

// untilSignal returns a context that ends with the first SIGTERM or SIGINT. The
// second one ends the process: somebody does not want to wait.
func untilSignal(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		s := <-signals
		klog.FromContext(ctx).Info("Shutting down, a second signal ends at once", "signal", s.String())
		cancel()
		<-signals
		os.Exit(exitFailed)
	}()
	return ctx
}

// buildVersion is what -ldflags set, else what the Go toolchain knows.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
