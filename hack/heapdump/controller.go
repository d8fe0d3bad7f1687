package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/steadwatch/steadwatch/hack/controlplane"
	"github.com/steadwatch/steadwatch/hack/install"
)

// instance is one run of the controller.
type instance struct {
	*controlplane.Program
	metrics, debug string // addresses
}

// startController starts the controller and waits until it serves.
func startController(ctx context.Context, cp *controlplane.ControlPlane, name, binary, kubeconfig string) (*instance, error) {
	program, err := cp.StartProgram(name, binary, "--kubeconfig="+kubeconfig, "--leader-election-namespace="+install.Namespace, "--tls-secrets",
		"--health-probe-bind-address=0", "--metrics-bind-address=127.0.0.1:0", "--debug-bind-address=127.0.0.1:0",
		"--kube-api-qps=500", "--kube-api-burst=500")
	if err != nil {
		return nil, err
	}
	c := &instance{Program: program}
	return c, c.Until(ctx, "the controller to serve", func() (bool, string) {
		at := install.Serving(c.Log())
		c.metrics, c.debug = at.Metrics, at.Debug
		return c.metrics != "" && c.debug != "", c.Log()
	})
}

// memory is what the controller says of its own after garbage has been collected.
type memory struct{ heap, rss float64 }

func (c *instance) collected(ctx context.Context) (memory, error) {
	// Two rounds: what finalizers hold goes in the second.
	for range 2 {
		if err := get(ctx, "http://"+c.debug+"/debug/pprof/heap?gc=1", func(string) error { return nil }); err != nil {
			return memory{}, err
		}
	}
	var m memory
	err := get(ctx, "http://"+c.metrics+"/metrics", func(line string) error {
		name, value, _ := strings.Cut(line, " ")
		to := map[string]*float64{"go_memstats_heap_alloc_bytes": &m.heap, "process_resident_memory_bytes": &m.rss}[name]
		if to == nil {
			return nil
		}
		var err error
		*to, err = strconv.ParseFloat(value, 64)
		return err
	})
	if err == nil && (m.heap == 0 || m.rss == 0) {
		err = fmt.Errorf("/metrics says nothing of memory: %+v", m)
	}
	return m, err
}

// get calls f for each line of a page.
func get(ctx context.Context, url string, f func(line string) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	lines := bufio.NewReader(response.Body)
	for {
		line, err := lines.ReadString('\n')
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f(strings.TrimSpace(line)); err != nil {
			return fmt.Errorf("%s: %q: %w", url, line, err)
		}
	}
}
