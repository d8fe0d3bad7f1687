package main

import (
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/steadwatch/steadwatch/pkg/informer"
)

// loadConfig returns how to reach the API server. It sends no request: one that
// is away is no reason not to start.
func loadConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if err == nil {
			return config, nil
		}
		if err != rest.ErrNotInCluster {
			return nil, fmt.Errorf("read the pod's service account: %w", err)
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	switch {
	case err == nil:
		// Timeout would end watches too.
		config.Timeout = 0
		return config, nil
	case clientcmd.IsEmptyConfig(err):
		return nil, &flagError{"kubeconfig", kubeconfig, "neither in a cluster, nor is there a kubeconfig that names an API server; give the path of one"}
	case os.IsNotExist(err):
		return nil, &flagError{"kubeconfig", kubeconfig, "no such file"}
	default:
		return nil, &flagError{"kubeconfig", kubeconfig, err.Error()}
	}
}

// clientConfig copies config for one user of the API server: a name in its audit
// log and its flow control, and a limiter that is shared with nobody else. All
// clients made of the copy share that limiter; with a rate alone each clientset would
// make one of its own.
func clientConfig(config *rest.Config, name string, qps float64, burst int) *rest.Config {
	config = rest.CopyConfig(config)
	config.UserAgent = name + "/" + buildVersion()
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(float32(qps), burst)
	return config
}

// newHearing is what the local copies share to find out whether their watches still
// tell them everything.
func newHearing(config *rest.Config, o *options) (*informer.Hearing, error) {
	off := func(d time.Duration) time.Duration {
		if d == 0 {
			return -1
		}
		return d
	}
	return informer.NewHearing(informer.HearingConfig{
		Config:        clientConfig(config, "steadwatch-hearing", 0, 0),
		ProbeAfter:    off(o.watchProbeAfter),
		AuditInterval: off(o.watchAuditInterval),
		PollInterval:  off(o.watchPollInterval),
	})
}

// fencedConfig is clientConfig for one who writes on behalf of the leader. The fence
// stands around the transport and, for a process that is stopped in between, at the
// connection.
func fencedConfig(config *rest.Config, fence *fence, name string, qps float64, burst int) *rest.Config {
	config = clientConfig(config, name, qps, burst)
	config.Wrap(fence.wrap)
	config.Dial = fence.dial
	return config
}
