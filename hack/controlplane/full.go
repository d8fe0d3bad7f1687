package controlplane

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// startFull starts what makes Pods run and waits until the nodes take them.
func (c *ControlPlane) startFull(ctx context.Context) error {
	ports := make([]string, 2)
	for i := range ports {
		port, err := freePort()
		if err != nil {
			return err
		}
		ports[i] = strconv.Itoa(port)
	}
	pki := filepath.Join(c.dir, "pki")
	extras := []struct {
		name, user string
		groups     []string
		args       []string
	}{{
		name: "kube-controller-manager", user: "system:kube-controller-manager",
		args: []string{
			"--leader-elect=false",
			"--bind-address=" + loopback,
			"--secure-port=" + ports[0],
			"--cert-dir=" + filepath.Join(c.dir, "kube-controller-manager"),
			"--use-service-account-credentials=true",
			"--service-account-private-key-file=" + filepath.Join(pki, "sa.key"),
			"--root-ca-file=" + filepath.Join(pki, "ca.crt"),
		},
	}, {
		name: "kube-scheduler", user: "system:kube-scheduler",
		args: []string{
			"--leader-elect=false",
			"--bind-address=" + loopback,
			"--secure-port=" + ports[1],
			"--cert-dir=" + filepath.Join(c.dir, "kube-scheduler"),
		},
	}, {
		name: "kwok", user: "kwok", groups: []string{"system:masters"},
		args: []string{
			"--manage-all-nodes=true",
			"--config=" + c.bin.path(stagesFile),
			"--cidr=10.0.0.1/16",
			"--node-ip=10.0.0.1",
			"--node-port=0",
			"--node-lease-duration-seconds=40",
		},
	}}
	for _, x := range extras {
		c.say("starting %s", x.name)
		cfg, err := c.ConfigFor(x.user, x.groups...)
		if err != nil {
			return err
		}
		kubeconfig := filepath.Join(c.dir, x.name+".kubeconfig")
		if err := c.WriteKubeconfig(kubeconfig, cfg); err != nil {
			return err
		}
		args := append([]string{"--kubeconfig=" + kubeconfig}, x.args...)
		s := &server{
			grace: 5 * time.Second,
			// What they do is waited for below: the nodes' readiness takes all three.
			ready: func(context.Context) error { return nil },
			spec: func() spec {
				return spec{name: x.name, path: c.bin.path(x.name), dir: c.dir, detached: c.cfg.Detach, args: args}
			},
		}
		if err := s.start(ctx); err != nil {
			return err
		}
		c.mu.Lock()
		c.extras = append(c.extras, s)
		c.mu.Unlock()
	}
	c.say("waiting for %d nodes", c.cfg.NodeCount)
	return c.addNodes(ctx)
}

// addNodes creates the fake nodes and waits until they are ready and without
// taints, so that the first Pod is not kept waiting.
func (c *ControlPlane) addNodes(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return err
	}
	for i := range c.cfg.NodeCount {
		name := fmt.Sprintf("node-%d", i)
		capacity := corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("32"),
			corev1.ResourceMemory: resource.MustParse("256Gi"),
			corev1.ResourcePods:   resource.MustParse("1000"),
		}
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name:        name,
				Labels:      map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", "type": "kwok"},
				Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
			},
			Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
		}
		if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node %s: %w", name, err)
		}
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		waiting, err := unreadyNodes(ctx, client)
		if err == nil && waiting == "" {
			return nil
		}
		if dead := c.Err(); dead != nil {
			return dead
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for nodes: %w (still waiting for: %s; last error: %v)", context.Cause(ctx), waiting, err)
		case <-tick.C:
		}
	}
}

// unreadyNodes says what is missing until Pods can be scheduled; "" if nothing.
func unreadyNodes(ctx context.Context, client kubernetes.Interface) (string, error) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "nodes", err
	}
	for _, node := range nodes.Items {
		ready := false
		for _, cond := range node.Status.Conditions {
			ready = ready || cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue
		}
		if !ready {
			return node.Name + " to become ready", nil
		}
		if len(node.Spec.Taints) > 0 {
			return node.Name + " to lose its taint " + node.Spec.Taints[0].Key, nil
		}
	}
	// The controller that makes it starts last of what a first Pod needs.
	if _, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{}); err != nil {
		return "the default service account", err
	}
	return "", nil
}
