package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"
)

// options are the flags.
type options struct {
	flags *flag.FlagSet

	kubeconfig    string
	namespaces    namespaceList
	printVersion  bool
	loggingFormat string

	defaultGateway gatewayName
	tlsSecrets     bool

	leaderElect             bool
	leaseDuration           time.Duration
	renewDeadline           time.Duration
	retryPeriod             time.Duration
	leaderElectionNamespace string

	workers          int
	reconcileTimeout time.Duration
	shutdownTimeout  time.Duration
	retryBaseDelay   time.Duration
	retryMaxDelay    time.Duration
	retryQPS         float64
	retryBurst       int
	terminalRecheck  time.Duration

	watchProbeAfter    time.Duration
	watchAuditInterval time.Duration
	watchPollInterval  time.Duration

	watchCanaryInterval  time.Duration
	watchCanaryFailAfter time.Duration

	kubeAPIQPS   float64
	kubeAPIBurst int

	healthAddress  string
	metricsAddress string
	debugAddress   string
}

// flagError refuses a flag: one line that names it, its value and the way out.
type flagError struct{ name, value, reason string }

func (e *flagError) Error() string {
	return fmt.Sprintf("--%s=%s: %s", e.name, e.value, e.reason)
}

// podNamespaceFile is where Kubernetes tells a pod its own namespace. A variable
// for tests.
var podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// parseOptions reads and checks the flags. Where its error is flag.ErrHelp the
// options are good for printUsage only.
func parseOptions(args []string) (*options, error) {
	o := &options{flags: flag.NewFlagSet("controller", flag.ContinueOnError)}
	f := o.flags
	f.SetOutput(io.Discard) // an error is one line, not the whole usage
	f.Usage = func() {}
	klog.InitFlags(f)

	f.StringVar(&o.kubeconfig, "kubeconfig", "", "path of a kubeconfig; empty: the pod's service account, outside a cluster $KUBECONFIG or ~/.kube/config")
	f.Var(&o.namespaces, "namespaces", "comma-separated namespaces to work in, no request then spans namespaces; empty: all")
	f.BoolVar(&o.printVersion, "version", false, "print the version and end")
	f.StringVar(&o.loggingFormat, "logging-format", "text", "text or json")

	f.Var(&o.defaultGateway, "default-gateway", "namespace/name of the Gateway for ApplicationRoutes that name none; empty: each has to name one")
	f.BoolVar(&o.tlsSecrets, "tls-secrets", false, "watch the metadata of Secrets, so that an ApplicationRoute says whether its tlsSecret is there and of type kubernetes.io/tls; needs get, list and watch on secrets")

	f.BoolVar(&o.leaderElect, "leader-elect", true, "write only while holding the lease; false where there is but one replica, ever")
	f.DurationVar(&o.leaseDuration, "leader-elect-lease-duration", 15*time.Second, "how long the lease lasts after its last renewal")
	f.DurationVar(&o.renewDeadline, "leader-elect-renew-deadline", 10*time.Second, "how long after its last renewal the leader stops writing and gives up")
	f.DurationVar(&o.retryPeriod, "leader-elect-retry-period", 2*time.Second, "time between attempts to get or renew the lease")
	f.StringVar(&o.leaderElectionNamespace, "leader-election-namespace", "", "namespace of the lease; empty: the pod's own, outside a pod steadwatch-system")

	f.IntVar(&o.workers, "workers", 4, "objects of a kind reconciled at a time")
	f.DurationVar(&o.reconcileTimeout, "reconcile-timeout", 15*time.Minute, "the longest one pass over an object may take")
	f.DurationVar(&o.shutdownTimeout, "shutdown-timeout", 30*time.Second, "how long running passes may go on at shutdown; keep terminationGracePeriodSeconds above it")
	f.DurationVar(&o.retryBaseDelay, "retry-base-delay", 100*time.Millisecond, "delay after an object's first failure, doubled by each further one")
	f.DurationVar(&o.retryMaxDelay, "retry-max-delay", 30*time.Second, "the longest delay between retries of an object")
	f.Float64Var(&o.retryQPS, "retry-qps", 10, "retries a second, all objects of a kind together")
	f.IntVar(&o.retryBurst, "retry-burst", 100, "retries above that rate at once")
	f.DurationVar(&o.terminalRecheck, "terminal-recheck", time.Hour, "how often to look again at what only a change can mend")

	f.DurationVar(&o.watchProbeAfter, "watch-probe-after", 30*time.Second, "how long a watch may be silent before the API server is asked whether there is something to tell; 0: never")
	f.DurationVar(&o.watchAuditInterval, "watch-audit-interval", 5*time.Minute, "how often a local copy is compared with a list of metadata; longer where that would be more than 200 objects a second; 0: never")
	f.DurationVar(&o.watchPollInterval, "watch-poll-interval", 15*time.Second, "how often a kind is listed while no watch of it works; longer for more than 5,000 objects; 0: never")

	f.DurationVar(&o.watchCanaryInterval, "watch-canary-interval", time.Minute, "how often the leader writes the Lease steadwatch-canary, which its own watch has to show; 0: never")
	f.DurationVar(&o.watchCanaryFailAfter, "watch-canary-fail-after", 5*time.Minute, "how long such a write may stay unseen before liveness fails, at most twice without 10 minutes of success in between")

	f.Float64Var(&o.kubeAPIQPS, "kube-api-qps", 50, "requests a second to the API server, for each controller's writes and for all local copies' reads")
	f.IntVar(&o.kubeAPIBurst, "kube-api-burst", 100, "requests above that rate at once")

	f.StringVar(&o.healthAddress, "health-probe-bind-address", ":8081", "where /healthz and /readyz are served; 0 or empty: nowhere")
	f.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "where /metrics is served; 0 or empty: nowhere")
	f.StringVar(&o.debugAddress, "debug-bind-address", "127.0.0.1:8082", "where on loopback /debug is served, unauthenticated; 0 or empty: nowhere")

	if err := f.Parse(args); err != nil {
		if err == flag.ErrHelp {
			return o, err
		}
		return nil, fmt.Errorf("%s (--help lists the flags)", oneLine(err))
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: everything is a flag (--help lists them)", f.Arg(0))
	}
	if o.leaderElectionNamespace == "" {
		o.leaderElectionNamespace = defaultNamespace()
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	return o, nil
}

// oneLine also gives flags the two dashes that they are documented with.
func oneLine(err error) string {
	s := strings.ReplaceAll(err.Error(), "\n", " ")
	for _, before := range []string{"not defined: ", "for flag ", "an argument: "} {
		s = strings.ReplaceAll(s, before+"-", before+"--")
	}
	return s
}

func defaultNamespace() string {
	if own, err := os.ReadFile(podNamespaceFile); err == nil {
		if name := strings.TrimSpace(string(own)); name != "" {
			return name
		}
	}
	return "steadwatch-system"
}

// check refuses values that make no sense, alone or together.
func (o *options) check() error {
	refuse := func(name, format string, args ...any) error {
		return &flagError{name, o.flags.Lookup(name).Value.String(), fmt.Sprintf(format, args...)}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"leader-elect-lease-duration", o.leaseDuration}, {"leader-elect-renew-deadline", o.renewDeadline},
		{"leader-elect-retry-period", o.retryPeriod}, {"reconcile-timeout", o.reconcileTimeout},
		{"shutdown-timeout", o.shutdownTimeout}, {"retry-base-delay", o.retryBaseDelay},
		{"retry-max-delay", o.retryMaxDelay}, {"terminal-recheck", o.terminalRecheck},
	} {
		if d.value <= 0 {
			return refuse(d.name, "must be positive")
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"watch-probe-after", o.watchProbeAfter}, {"watch-audit-interval", o.watchAuditInterval}, {"watch-poll-interval", o.watchPollInterval},
	} {
		switch {
		case d.value < 0:
			return refuse(d.name, "must not be negative; 0 switches it off")
		case d.value > 0 && d.value < time.Second:
			return refuse(d.name, "must be a second or more, or 0 to switch it off")
		}
	}
	if err := o.checkWatchCanary(refuse); err != nil {
		return err
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"workers", o.workers}, {"retry-burst", o.retryBurst}, {"kube-api-burst", o.kubeAPIBurst}} {
		if n.value <= 0 {
			return refuse(n.name, "must be positive")
		}
	}
	for _, q := range []struct {
		name  string
		value float64
	}{{"retry-qps", o.retryQPS}, {"kube-api-qps", o.kubeAPIQPS}} {
		if !(q.value > 0) || math.IsInf(q.value, 1) { // NaN too
			return refuse(q.name, "must be positive and finite")
		}
	}
	switch {
	// A Lease holds whole seconds: others would count from a shorter duration.
	case o.leaseDuration%time.Second != 0:
		return refuse("leader-elect-lease-duration", "must be whole seconds, which is all that a Lease can hold")
	case o.leaseDuration <= o.renewDeadline:
		return refuse("leader-elect-renew-deadline", "must be shorter than --leader-elect-lease-duration (%s), or another process leads before this one has given up", o.leaseDuration)
	case o.renewDeadline <= time.Duration(leaderelection.JitterFactor*float64(o.retryPeriod)):
		return refuse("leader-elect-retry-period", "must be well below --leader-elect-renew-deadline (%s), or one missed attempt loses the lease", o.renewDeadline)
	case o.retryMaxDelay < o.retryBaseDelay:
		return refuse("retry-max-delay", "must not be below --retry-base-delay (%s)", o.retryBaseDelay)
	case o.loggingFormat != "text" && o.loggingFormat != "json":
		return refuse("logging-format", "must be text or json")
	}
	for _, namespace := range o.namespaces {
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			return refuse("namespaces", "%q is no name of a namespace; give names separated by commas, or nothing for all namespaces", namespace)
		}
	}
	if g := o.defaultGateway; g.value != "" &&
		(len(validation.IsDNS1123Label(g.Namespace)) > 0 || len(validation.IsDNS1123Subdomain(g.Name)) > 0) {
		return refuse("default-gateway", "must be namespace/name of a Gateway, such as gateways/public, or empty for none")
	}
	if problems := validation.IsDNS1123Label(o.leaderElectionNamespace); len(problems) > 0 {
		return refuse("leader-election-namespace", "%q is no name of a namespace", o.leaderElectionNamespace)
	}
	for _, a := range []struct{ name, value string }{
		{"health-probe-bind-address", o.healthAddress}, {"metrics-bind-address", o.metricsAddress}, {"debug-bind-address", o.debugAddress},
	} {
		if disabled(a.value) {
			continue
		}
		host, _, err := net.SplitHostPort(a.value)
		if err != nil {
			return refuse(a.name, "must be host:port or :port, or 0 to disable it")
		}
		if ip := net.ParseIP(host); a.name == "debug-bind-address" && host != "localhost" && !ip.IsLoopback() {
			return refuse(a.name, "must be on loopback, such as 127.0.0.1:8082: whoever reaches it can read memory and run keys; kubectl port-forward does")
		}
	}
	return nil
}

// disabled reports whether a bind address means that nothing is served.
func disabled(address string) bool { return address == "" || address == "0" }

func dashes(name string) string {
	if len(name) == 1 {
		return "-"
	}
	return "--"
}

func (o *options) printUsage(w io.Writer) {
	fmt.Fprint(w, "Usage: controller [flags]\n\nRuns the Steadwatch controllers against the API server of the cluster.\n\nFlags:\n")
	var all []*flag.Flag
	o.flags.VisitAll(func(f *flag.Flag) { all = append(all, f) })
	slices.SortFunc(all, func(a, b *flag.Flag) int { return cmp.Compare(a.Name, b.Name) })
	for _, f := range all {
		fmt.Fprintf(w, "  %s%s", dashes(f.Name), f.Name)
		if f.DefValue != "" {
			fmt.Fprintf(w, "=%s", f.DefValue)
		}
		fmt.Fprintf(w, "\n        %s\n", f.Usage)
	}
}

// namespaceList is a sorted set of names.
type namespaceList []string

func (l *namespaceList) String() string { return strings.Join(*l, ",") }

func (l *namespaceList) Set(value string) error {
	*l = nil
	if value == "" {
		return nil
	}
	for name := range strings.SplitSeq(value, ",") {
		*l = append(*l, strings.TrimSpace(name))
	}
	slices.Sort(*l)
	*l = slices.Compact(*l)
	return nil
}

// gatewayName is a flag's namespace/name. Whether it is one is for check to say.
type gatewayName struct {
	cache.ObjectName
	value string
}

func (g *gatewayName) String() string { return g.value }

func (g *gatewayName) Set(value string) error {
	namespace, name, _ := strings.Cut(value, "/")
	*g = gatewayName{cache.NewObjectName(namespace, name), value}
	return nil
}
