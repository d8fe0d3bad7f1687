package controlplane

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// serviceIP is the first address of the service range, which the API server
// takes for the service "kubernetes".
const (
	serviceRange = "10.96.0.0/16"
	serviceIP    = "10.96.0.1"
)

// APIServer is one kube-apiserver. ControlPlane has one; AddAPIServer adds
// others on the same etcd.
type APIServer struct {
	server
	cp   *ControlPlane
	name string
	url  string
}

func (c *ControlPlane) newAPIServer(name string) (*APIServer, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	a := &APIServer{cp: c, name: name, url: "https://" + net.JoinHostPort(loopback, strconv.Itoa(port))}
	pki := filepath.Join(c.dir, "pki")
	args := []string{
		"--etcd-servers=" + c.etcd.url,
		"--bind-address=" + loopback,
		"--advertise-address=" + loopback,
		"--secure-port=" + strconv.Itoa(port),
		// The reconciler refuses to write a loopback address into the Endpoints
		// of the service "kubernetes".
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + serviceRange,
		"--tls-cert-file=" + filepath.Join(pki, "apiserver.crt"),
		"--tls-private-key-file=" + filepath.Join(pki, "apiserver.key"),
		"--client-ca-file=" + filepath.Join(pki, "ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + filepath.Join(pki, "sa.pub"),
		"--service-account-signing-key-file=" + filepath.Join(pki, "sa.key"),
		"--authorization-mode=Node,RBAC",
		"--allow-privileged=true",
	}
	if !c.cfg.Full {
		// Nobody makes default service accounts.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	if c.cfg.Audit {
		args = append(args,
			"--audit-policy-file="+filepath.Join(c.dir, auditPolicyFile),
			"--audit-log-path="+a.auditLog(),
			"--audit-log-mode=blocking",
			// 0 is not "no limit" but a rotation at 100 MB.
			"--audit-log-maxsize=100000",
		)
	}
	args = append(args, c.cfg.ExtraAPIServerArgs...)
	a.server = server{
		grace: 5 * time.Second,
		ready: a.healthy,
		spec: func() spec {
			return spec{name: name, path: c.bin.path("kube-apiserver"), dir: c.dir, detached: c.cfg.Detach, args: args}
		},
	}
	return a, nil
}

func (a *APIServer) auditLog() string { return filepath.Join(a.cp.dir, "logs", a.name+"-audit.log") }

func (a *APIServer) healthy(ctx context.Context) error {
	cfg := a.Config()
	// Every try on a connection of its own: an old one may lead to a process
	// that is gone.
	cfg.Dial = (&net.Dialer{}).DialContext
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Raw()
	if err != nil {
		return fmt.Errorf("GET /readyz: %w: %s", err, body)
	}
	return nil
}

func (a *APIServer) running() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.proc != nil
}

// Config is an administrator's client configuration for this server.
func (a *APIServer) Config() *rest.Config {
	cfg := rest.CopyConfig(a.cp.admin)
	cfg.Host = a.url
	return cfg
}

// Pause stops the server's threads: connections stay open, nobody answers.
func (a *APIServer) Pause(ctx context.Context) error { return a.pause(ctx) }

// Resume undoes Pause.
func (a *APIServer) Resume() error { return a.resume() }

// Stop ends the server; open watches are closed.
func (a *APIServer) Stop() { a.stop() }

// Kill ends the server without notice: connections break.
func (a *APIServer) Kill() { a.kill() }

// Start starts the server again on its port and waits until it is ready.
func (a *APIServer) Start(ctx context.Context) error { return a.restart(ctx) }

// APIServer is the first API server, which Config and the kubeconfig lead to.
func (c *ControlPlane) APIServer() *APIServer { return c.apiServers()[0] }

func (c *ControlPlane) apiServers() []*APIServer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]*APIServer(nil), c.apis...)
}

// AddAPIServer starts another API server on the same etcd and waits until it is
// ready.
func (c *ControlPlane) AddAPIServer(ctx context.Context) (*APIServer, error) {
	c.mu.Lock()
	c.added++
	name := "kube-apiserver"
	if c.added > 1 {
		name += "-" + strconv.Itoa(c.added)
	}
	c.mu.Unlock()

	var a *APIServer
	err := withFreshPorts(func() (err error) {
		if a, err = c.newAPIServer(name); err != nil {
			return err
		}
		return a.start(ctx)
	})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.apis = append(c.apis, a)
	c.mu.Unlock()
	return a, nil
}

// Pause stops the threads of the first API server.
func (c *ControlPlane) Pause(ctx context.Context) error { return c.APIServer().Pause(ctx) }

// Resume undoes Pause.
func (c *ControlPlane) Resume() error { return c.APIServer().Resume() }

// StopAPIServer ends the first API server.
func (c *ControlPlane) StopAPIServer() { c.APIServer().Stop() }

// StartAPIServer starts it again with the same port and data.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error { return c.APIServer().Start(ctx) }
