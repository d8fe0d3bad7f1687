// Command faults runs the product under every fault that it has to live with, and
// prints what became of it: a table in Markdown.
//
//	go run ./hack/faults                      # full lengths, three quarters of an hour
//	go run ./hack/faults -short               # intervals shortened, some minutes
//	go run ./hack/faults -only=one-watch-frozen,quiet
//	go run ./hack/faults -list
//	go run ./hack/faults -out=docs/faults.md
//
// The product is the controller's binary under the ServiceAccount and the rules of
// manifests/, with leader election, on a real etcd and kube-apiserver behind
// hack/faultproxy. A stand-in for the kubelet asks /healthz as the manifests'
// livenessProbe says and restarts it. WebApps are changed past the proxy, and a
// change counts as acted on when the child Deployment shows it to a direct watch.
// Beside the product client-go's own informer watches the same WebApps through the
// same proxy.
//
// It ends with 1 if something that has to hold does not.
//
// # Caveats
//
//   - Scenarios run at the same time, most of them on one control plane, each in
//     namespaces of its own. Delays hold what a busy machine adds.
//   - -short cannot shorten what is the API server's (a bookmark a minute, a watch's
//     life) or has no flag. Its numbers say nothing about the defaults.
//   - The product works in one namespace of few objects, unless said otherwise. With
//     the Deployment's Pods left out nothing is ever Ready.
//   - A fault that the proxy makes is not the real thing: it speaks TLS and HTTP/2 on
//     both sides, so nothing below them is what breaks.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/steadwatch/steadwatch/hack/install"
)

func main() {
	short := flag.Bool("short", false, "shorten intervals and faults")
	only := flag.String("only", "", "comma-separated names of scenarios; empty: all")
	list := flag.Bool("list", false, "list the scenarios and end")
	out := flag.String("out", "", "also replace what this file says of the scenarios that run; not with -short")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "faults: unexpected argument %q\n", flag.Arg(0))
		os.Exit(2)
	}
	if *short && *out != "" {
		fmt.Fprintln(os.Stderr, "faults: -out and -short: what is kept has full lengths; leave one out")
		os.Exit(2)
	}
	chosen, err := choose(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(2)
	}
	if *list {
		for _, s := range chosen {
			fmt.Printf("%-28s %s\n", s.name, s.fault)
		}
		return
	}
	// The informers beside the product complain, as they should.
	klog.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	held, err := run(ctx, chosen, *short, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
	}
	if err != nil || !held {
		stop()
		os.Exit(1)
	}
}

// choose returns the scenarios with these names, in the catalogue's order.
func choose(only string) ([]*scenario, error) {
	all := catalogue()
	if only == "" {
		return all, nil
	}
	names := strings.Split(only, ",")
	for _, name := range names {
		if !slices.ContainsFunc(all, func(s *scenario) bool { return s.name == name }) {
			return nil, fmt.Errorf("-only=%s: there is no %q; -list shows the names", only, name)
		}
	}
	return slices.DeleteFunc(all, func(s *scenario) bool { return !slices.Contains(names, s.name) }), nil
}

// run reports whether all held.
func run(ctx context.Context, scenarios []*scenario, short bool, file string) (held bool, err error) {
	root, err := install.Root()
	if err != nil {
		return false, err
	}
	began := time.Now()
	l, err := newLab(ctx, root, short, true, os.Stderr)
	if err != nil {
		return false, err
	}
	defer l.close()
	l.say("running %d scenarios", len(scenarios))

	if err := l.startControl(ctx); err != nil {
		return false, err
	}

	results := make([]*result, len(scenarios))
	var running sync.WaitGroup
	held = true
	var mu sync.Mutex
	for k, s := range scenarios {
		running.Go(func() {
			sleep(ctx, time.Duration(k)*time.Second) // in this order: the longest first
			r, err := l.run(ctx, s)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				held = false
				l.say("%v", err)
				return
			}
			held = held && len(r.problems) == 0
			l.say("%s done after %s", s.name, round(time.Since(began)))
			for _, p := range r.problems {
				l.say("%s: %s", s.name, p)
			}
			results[k] = r
		})
	}
	running.Wait()
	results = append(results, l.endControl())
	results = slices.DeleteFunc(results, func(r *result) bool { return r == nil })

	entries := map[string]entry{}
	for _, r := range results {
		entries[r.scenario.name] = newEntry(r)
	}
	report(os.Stdout, entries, l.settings)
	if file != "" {
		return held, updateReport(file, entries, l.settings)
	}
	return held, nil
}
