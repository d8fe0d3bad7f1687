// Command controlplane runs a real control plane in the background, for trying
// things out and for the demo:
//
//	go run ./hack/controlplane/cmd/controlplane up
//	export KUBECONFIG=$PWD/.run/kubeconfig
//	go run ./hack/controlplane/cmd/controlplane down
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/steadwatch/steadwatch/hack/controlplane"
)

const usage = `usage: controlplane COMMAND [flags]

  up      start a control plane in the background and say how to use it
  down    end it and remove all that it left
  status  say what is running
  build   compile the binaries (or only those named after the flags), unless
          they are there, and print their folder

controlplane COMMAND -h lists the command's flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// errUsage is returned when the flag package or run has told what is wrong.
var errUsage = errors.New("wrong usage")

var defaultDir = filepath.Join(".run", "controlplane")

type options struct {
	dir, kubeconfig string
	full, audit     bool
	names           []string // of binaries, for build
	nodes           int
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	if len(args) == 0 {
		fmt.Fprint(progress, usage)
		return errUsage
	}
	commands := map[string]func(context.Context, options, io.Writer, io.Writer) error{
		"up": up, "down": down, "status": status, "build": build,
	}
	command, ok := commands[args[0]]
	if !ok {
		fmt.Fprint(progress, usage)
		if args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
			return flag.ErrHelp
		}
		return errUsage
	}

	var o options
	flags := flag.NewFlagSet("controlplane "+args[0], flag.ContinueOnError)
	flags.SetOutput(progress)
	if args[0] != "build" {
		flags.StringVar(&o.dir, "dir", defaultDir, "folder of the control plane's state")
		flags.StringVar(&o.kubeconfig, "kubeconfig", "", "the kubeconfig that up writes (default: kubeconfig beside --dir)")
	}
	if args[0] == "up" || args[0] == "build" {
		flags.BoolVar(&o.full, "full", true, "with controllers, scheduler and fake nodes (kwok), so that Pods become ready")
	}
	if args[0] == "up" {
		flags.IntVar(&o.nodes, "nodes", 2, "number of fake nodes")
		flags.BoolVar(&o.audit, "audit", false, "log every request to logs/kube-apiserver-audit.log in --dir")
	}
	if err := flags.Parse(args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	o.names = flags.Args()
	if flags.NArg() > 0 && args[0] != "build" {
		return fmt.Errorf("unexpected argument %q: see controlplane %s -h", flags.Arg(0), args[0])
	}
	var err error
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	if o.kubeconfig == "" {
		o.kubeconfig = filepath.Join(filepath.Dir(o.dir), "kubeconfig")
	}
	if o.kubeconfig, err = filepath.Abs(o.kubeconfig); err != nil {
		return err
	}
	return command(ctx, o, out, progress)
}

func up(ctx context.Context, o options, out, progress io.Writer) error {
	if entries, err := os.ReadDir(o.dir); err == nil && len(entries) > 0 {
		url, version, err := controlplane.Check(ctx, o.dir)
		if err != nil {
			return fmt.Errorf("%s is there, but its control plane is not ready (%w): end it with \"controlplane down\" first", o.dir, err)
		}
		fmt.Fprintf(out, "A control plane is up already: Kubernetes %s at %s.\n", version, url)
		return howTo(o, "", out)
	}
	cp, err := controlplane.Start(ctx, controlplane.Config{
		Dir: o.dir, Detach: true, Build: true,
		Full: o.full, NodeCount: o.nodes, Audit: o.audit,
		Out: progress,
	})
	if err != nil {
		// Nothing runs any more; the logs' ends are in the error.
		downErr := cleanUp(ctx, o)
		if ctx.Err() != nil && downErr == nil {
			return errors.New("interrupted: what had been started is ended and removed")
		}
		return errors.Join(err, downErr)
	}
	data, err := os.ReadFile(cp.KubeconfigFile())
	if err == nil {
		err = os.WriteFile(o.kubeconfig, data, 0o600)
	}
	if err != nil {
		cp.Stop()
		return errors.Join(fmt.Errorf("write the kubeconfig: %w", err), cleanUp(ctx, o))
	}
	url, version, err := controlplane.Check(ctx, o.dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "The control plane is up: Kubernetes %s at %s.\n", version, url)
	return howTo(o, cp.Binary("kubectl"), out)
}

// cleanUp removes what a start that did not succeed left, even after Ctrl-C.
func cleanUp(ctx context.Context, o options) error {
	_, err := controlplane.Down(context.WithoutCancel(ctx), o.dir)
	_ = os.Remove(filepath.Dir(o.dir)) // only if it is empty
	return err
}

func howTo(o options, kubectl string, out io.Writer) error {
	fmt.Fprintf(out, "\n  export KUBECONFIG=%q\n", o.kubeconfig)
	if kubectl != "" {
		fmt.Fprintf(out, "  kubectl get nodes          # if you have no kubectl: %s\n", kubectl)
	}
	fmt.Fprintf(out, "\nIt goes on running in the background; its logs are in %s.\n", filepath.Join(o.dir, "logs"))
	end := "go run ./hack/controlplane/cmd/controlplane down"
	if standard, err := filepath.Abs(defaultDir); err != nil || standard != o.dir {
		end += fmt.Sprintf(" --dir %q", o.dir)
	}
	_, err := fmt.Fprintf(out, "To end it:\n\n  %s\n", end)
	return err
}

func down(ctx context.Context, o options, out, _ io.Writer) error {
	_, statErr := os.Stat(o.dir)
	killed, err := controlplane.Down(ctx, o.dir)
	if err != nil {
		return err
	}
	removed, err := removeKubeconfig(o.kubeconfig)
	if err != nil {
		return err
	}
	// Only if it is empty.
	_ = os.Remove(filepath.Dir(o.dir))
	if killed == 0 && !removed && errors.Is(statErr, os.ErrNotExist) {
		_, err = fmt.Fprintln(out, "Nothing was up.")
		return err
	}
	_, err = fmt.Fprintf(out, "Ended %d processes and removed %s.\n", killed, o.dir)
	return err
}

// removeKubeconfig removes the file if it is one that up wrote.
func removeKubeconfig(file string) (bool, error) {
	cfg, err := clientcmd.LoadFromFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the kubeconfig that is to be removed: %w", err)
	}
	if len(cfg.Contexts) != 1 || cfg.Contexts[controlplane.ContextName] == nil {
		return false, nil
	}
	return true, os.Remove(file)
}

func status(ctx context.Context, o options, out, _ io.Writer) error {
	processes, err := controlplane.Processes(o.dir)
	if err != nil {
		return err
	}
	if len(processes) == 0 {
		return fmt.Errorf("no control plane is up in %s: start one with \"controlplane up\"", o.dir)
	}
	for _, p := range processes {
		fmt.Fprintf(out, "%-24s pid %d\n", p.Name, p.PID)
	}
	url, version, err := controlplane.Check(ctx, o.dir)
	if err != nil {
		return fmt.Errorf("the API server is not ready: %w", err)
	}
	_, err = fmt.Fprintf(out, "\nready: Kubernetes %s at %s, kubeconfig %s\n", version, url, o.kubeconfig)
	return err
}

func build(ctx context.Context, o options, out, progress io.Writer) error {
	begin := time.Now()
	names := o.names
	if len(names) == 0 && !o.full {
		names = []string{"etcd", "kube-apiserver"}
	}
	dir, err := controlplane.Build(ctx, progress, names...)
	if err != nil {
		return err
	}
	fmt.Fprintf(progress, "the binaries are there (%s)\n", time.Since(begin).Round(time.Second))
	_, err = fmt.Fprintln(out, dir)
	return err
}
