package controlplane

import (
	"context"
	"fmt"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Config is an administrator's client configuration (user steadwatch-admin,
// group system:masters) for the first API server. It has no client-side rate
// limit. The caller owns it.
func (c *ControlPlane) Config() *rest.Config { return c.APIServer().Config() }

// ConfigFor is a client configuration for a user who authenticates with a
// client certificate. Without groups or role bindings the user may do nothing
// but discovery.
func (c *ControlPlane) ConfigFor(user string, groups ...string) (*rest.Config, error) {
	cfg, err := c.userConfig(user, groups)
	if err != nil {
		return nil, err
	}
	cfg.Host = c.APIServer().url
	return cfg, nil
}

func (c *ControlPlane) userConfig(user string, groups []string) (*rest.Config, error) {
	if user == "" {
		return nil, fmt.Errorf("client certificate: the user's name is empty")
	}
	cert, key, err := c.ca.client(user, groups)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		QPS:             -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.certPEM, CertData: cert, KeyData: key},
	}, nil
}

// ServiceAccountConfig is a client configuration for a service account, which
// has to exist, with a token from the TokenRequest API that is valid for a day.
func (c *ControlPlane) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		return nil, fmt.Errorf("token for service account %s/%s: %w", namespace, name, err)
	}
	seconds := int64(24 * 60 * 60)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	response, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("token for service account %s/%s: %w", namespace, name, err)
	}
	return &rest.Config{
		Host:            c.APIServer().url,
		QPS:             -1,
		BearerToken:     response.Status.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca.certPEM},
	}, nil
}

// KubeconfigFile is the path of a kubeconfig with the credentials of Config.
func (c *ControlPlane) KubeconfigFile() string { return filepath.Join(c.dir, "kubeconfig") }

// Binary is the path of one of the binaries this control plane runs, or of
// kubectl with Config.Full; empty for others.
func (c *ControlPlane) Binary(name string) string { return c.bin[name] }

// ContextName is the one context in the kubeconfigs written here.
const ContextName = "steadwatch"

// WriteKubeconfig writes the server and the credentials (client certificate or
// token) of a Config, ConfigFor or ServiceAccountConfig to a file that only its
// owner can read.
func (c *ControlPlane) WriteKubeconfig(file string, cfg *rest.Config) error {
	const name = ContextName
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	kubeconfig.CurrentContext = name
	if err := clientcmd.WriteToFile(*kubeconfig, file); err != nil {
		return fmt.Errorf("write the kubeconfig %s: %w", file, err)
	}
	return nil
}
