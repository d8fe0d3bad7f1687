package main

import (
	"errors"
	"flag"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/steadwatch/steadwatch/pkg/generated/clientset/versioned"
)

func TestRefusedFlags(t *testing.T) {
	tests := map[string]struct {
		reason string
		args   []string
		want   string
	}{
		"Unknown":             {"a misspelt flag does nothing", []string{"--worker=3"}, "flag provided but not defined: --worker (--help lists the flags)"},
		"NotANumber":          {"the value does not parse", []string{"--workers=many"}, `invalid value "many" for flag --workers: parse error (--help lists the flags)`},
		"Argument":            {"nothing takes arguments", []string{"run"}, `unexpected argument "run": everything is a flag (--help lists them)`},
		"NegativeWorkers":     {"nothing would run", []string{"--workers=-1"}, "--workers=-1: must be positive"},
		"NoWorkers":           {"nothing would run", []string{"--workers=0"}, "--workers=0: must be positive"},
		"NegativeTimeout":     {"every pass would fail", []string{"--reconcile-timeout=-1s"}, "--reconcile-timeout=-1s: must be positive"},
		"NoShutdownTimeout":   {"the controller would take zero for its default", []string{"--shutdown-timeout=0"}, "--shutdown-timeout=0s: must be positive"},
		"NegativeProbe":       {"0 is what switches it off", []string{"--watch-probe-after=-1s"}, "--watch-probe-after=-1s: must not be negative; 0 switches it off"},
		"NegativeAudit":       {"0 is what switches it off", []string{"--watch-audit-interval=-1s"}, "--watch-audit-interval=-1s: must not be negative; 0 switches it off"},
		"ShortPoll":           {"a list each time", []string{"--watch-poll-interval=100ms"}, "--watch-poll-interval=100ms: must be a second or more, or 0 to switch it off"},
		"NaN":                 {"compares with nothing", []string{"--kube-api-qps=NaN"}, "--kube-api-qps=NaN: must be positive and finite"},
		"RenewAboveLease":     {"two would lead", []string{"--leader-elect-renew-deadline=20s"}, "--leader-elect-renew-deadline=20s: must be shorter than --leader-elect-lease-duration (15s), or another process leads before this one has given up"},
		"RenewEqualsLease":    {"no time for workers to come back", []string{"--leader-elect-renew-deadline=15s"}, "--leader-elect-renew-deadline=15s: must be shorter than --leader-elect-lease-duration (15s), or another process leads before this one has given up"},
		"RetryAboveRenew":     {"one attempt decides", []string{"--leader-elect-retry-period=9s"}, "--leader-elect-retry-period=9s: must be well below --leader-elect-renew-deadline (10s), or one missed attempt loses the lease"},
		"BrokenLease":         {"a Lease holds whole seconds; 15.9s would be 15s to others", []string{"--leader-elect-lease-duration=15.9s"}, "--leader-elect-lease-duration=15.9s: must be whole seconds, which is all that a Lease can hold"},
		"MaxBelowBase":        {"the cap wins, then what is the base for", []string{"--retry-base-delay=1m"}, "--retry-max-delay=30s: must not be below --retry-base-delay (1m0s)"},
		"NamespaceUpperCase":  {"the API server would answer NotFound for ever", []string{"--namespaces=a,Prod"}, `--namespaces=Prod,a: "Prod" is no name of a namespace; give names separated by commas, or nothing for all namespaces`},
		"NamespaceEmpty":      {"a trailing comma must not mean all namespaces", []string{"--namespaces=a,"}, `--namespaces=,a: "" is no name of a namespace; give names separated by commas, or nothing for all namespaces`},
		"LeaseNamespace":      {"the lease could never be created", []string{"--leader-election-namespace=a/b"}, `--leader-election-namespace=a/b: "a/b" is no name of a namespace`},
		"DebugForAll":         {"it is not authenticated", []string{"--debug-bind-address=:8082"}, "--debug-bind-address=:8082: must be on loopback, such as 127.0.0.1:8082: whoever reaches it can read memory and run keys; kubectl port-forward does"},
		"DebugOnAnAddress":    {"nor is it there", []string{"--debug-bind-address=10.0.0.1:8082"}, "--debug-bind-address=10.0.0.1:8082: must be on loopback, such as 127.0.0.1:8082: whoever reaches it can read memory and run keys; kubectl port-forward does"},
		"AddressWithoutColon": {"a port alone", []string{"--metrics-bind-address=8080"}, "--metrics-bind-address=8080: must be host:port or :port, or 0 to disable it"},
		"CanaryNegative":      {"no such interval", []string{"--watch-canary-interval=-1s"}, "--watch-canary-interval=-1s: must be a second or more, or 0 to switch it off"},
		"CanaryTooOften":      {"a write every millisecond", []string{"--watch-canary-interval=1ms"}, "--watch-canary-interval=1ms: must be a second or more, or 0 to switch it off"},
		"CanaryFailsFirst":    {"deaf before it is late", []string{"--watch-canary-fail-after=30s"}, "--watch-canary-fail-after=30s: must not be below --watch-canary-interval (1m0s); to switch the canary off, set that to 0"},
		"CanaryNeverFails":    {"0 does not mean never here", []string{"--watch-canary-fail-after=0"}, "--watch-canary-fail-after=0s: must not be below --watch-canary-interval (1m0s); to switch the canary off, set that to 0"},
		"GatewayName":         {"of which namespace", []string{"--default-gateway=public"}, "--default-gateway=public: must be namespace/name of a Gateway, such as gateways/public, or empty for none"},
		"GatewayNoName":       {"all of a namespace's", []string{"--default-gateway=gateways/"}, "--default-gateway=gateways/: must be namespace/name of a Gateway, such as gateways/public, or empty for none"},
		"GatewaySlashes":      {"not the API's way to say it", []string{"--default-gateway=gateways/public/443"}, "--default-gateway=gateways/public/443: must be namespace/name of a Gateway, such as gateways/public, or empty for none"},
		"GatewayUpperCase":    {"no object can have such a name", []string{"--default-gateway=gateways/Public"}, "--default-gateway=gateways/Public: must be namespace/name of a Gateway, such as gateways/public, or empty for none"},
		"LoggingFormat":       {"unknown format", []string{"--logging-format=xml"}, "--logging-format=xml: must be text or json"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parseOptions(tc.args)
			if err == nil {
				t.Fatalf("%s: accepted %q", tc.reason, tc.args)
			}
			if diff := cmp.Diff(tc.want, err.Error()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestAcceptedFlags(t *testing.T) {
	o, err := parseOptions([]string{"--namespaces=b, a,b", "-v=4", "--leader-elect=false", "--metrics-bind-address=0", "--debug-bind-address=", "--watch-canary-interval=0"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(namespaceList{"a", "b"}, o.namespaces); diff != "" {
		t.Errorf("--namespaces (-want +got):\n%s", diff)
	}
	if o.leaderElect || !disabled(o.metricsAddress) || !disabled(o.debugAddress) || disabled(o.healthAddress) {
		t.Errorf("options %+v", o)
	}
	if o.defaultGateway != (gatewayName{}) || o.tlsSecrets {
		t.Errorf("a default Gateway %v, or Secrets are read (%t), unasked", o.defaultGateway, o.tlsSecrets)
	}

	if o, err = parseOptions([]string{"--default-gateway=gateways/public.example.com", "--tls-secrets"}); err != nil {
		t.Fatal(err)
	}
	if want := cache.NewObjectName("gateways", "public.example.com"); o.defaultGateway.ObjectName != want || !o.tlsSecrets {
		t.Errorf("options %+v", o)
	}

	// As a manifest gives it that has none.
	if o, err = parseOptions([]string{"--default-gateway="}); err != nil || o.defaultGateway.ObjectName != (cache.ObjectName{}) {
		t.Errorf("options %+v, error %v", o, err)
	}
}

func TestHelp(t *testing.T) {
	o, err := parseOptions([]string{"--help"})
	if !errors.Is(err, flag.ErrHelp) {
		t.Fatalf("parseOptions(--help) = %v", err)
	}
	var out strings.Builder
	o.printUsage(&out)
	for _, want := range []string{"  --leader-elect-lease-duration=15s\n", "  --kubeconfig\n", "  -v="} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("usage lacks %q:\n%s", want, out.String())
		}
	}
}

// The lease belongs into the namespace that the pod runs in: a Role there is all
// that it needs.
func TestLeaderElectionNamespace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "namespace")
	before := podNamespaceFile
	podNamespaceFile = file
	defer func() { podNamespaceFile = before }()
	for _, step := range []struct {
		content string
		args    []string
		want    string
	}{
		{"", nil, "steadwatch-system"},
		{"team-a\n", nil, "team-a"},
		{"team-a\n", []string{"--leader-election-namespace=given"}, "given"},
	} {
		if step.content != "" {
			if err := os.WriteFile(file, []byte(step.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		o, err := parseOptions(step.args)
		if err != nil {
			t.Fatal(err)
		}
		if o.leaderElectionNamespace != step.want {
			t.Errorf("file %q, flags %q: namespace %q, want %q", step.content, step.args, o.leaderElectionNamespace, step.want)
		}
	}
}

func TestAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	var s servers
	defer s.close(t.Context())
	err = s.listen(t.Context(), "metrics-bind-address", taken.Addr().String(), nil)
	want := "--metrics-bind-address=" + taken.Addr().String() + ": bind: address already in use; give another address, or 0 to disable it"
	if err == nil || err.Error() != want {
		t.Errorf("listen() = %v\nwant %s", err, want)
	}
	if !errors.As(err, new(*flagError)) {
		t.Errorf("listen() = %T, want a flagError: the process ends with exit code %d", err, exitRefused)
	}
}

func TestKubeconfigMissing(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none")
	_, err := loadConfig(missing)
	if want := "--kubeconfig=" + missing + ": no such file"; err == nil || err.Error() != want {
		t.Errorf("loadConfig() = %v, want %s", err, want)
	}
}

// A request timeout would end every watch after it.
func TestKubeconfigTimeout(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	content := `{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":{"cluster":"a"}}],"clusters":[{"name":"a","cluster":{"server":"https://127.0.0.1:1"}}]}`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := loadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	if config.Timeout != 0 || config.Host != "https://127.0.0.1:1" {
		t.Errorf("host %q, timeout %s", config.Host, config.Timeout)
	}
	first, second := clientConfig(config, "steadwatch", 5, 10), clientConfig(config, "steadwatch-webapp", 50, 100)
	if first.UserAgent == second.UserAgent || first.RateLimiter == second.RateLimiter {
		t.Error("two users of the API server share a name or a limiter")
	}
	// One user has several clientsets, and one limit.
	a, b := kubernetes.NewForConfigOrDie(first), versioned.NewForConfigOrDie(first)
	if l := a.AppsV1().RESTClient().GetRateLimiter(); l == nil || l != b.PlatformV1alpha1().RESTClient().GetRateLimiter() {
		t.Error("two clientsets of one user have a limiter each: the user has twice its rate")
	}
}
