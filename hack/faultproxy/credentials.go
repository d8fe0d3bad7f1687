package faultproxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

// errUnknownCertificate is for a client that was not configured by ClientConfig.
var errUnknownCertificate = errors.New("the client's certificate is unknown to the fault proxy, which needs its key: " +
	"make the client's configuration with Proxy.ClientConfig")

// identities are the ways to appear before the API server.
type identities struct {
	upstream *rest.Config
	own      http.RoundTripper // the credentials of Config.Upstream
	bare     http.RoundTripper // none: the request brings a token

	mu    sync.Mutex
	certs map[[32]byte]http.RoundTripper // by the hash of the certificate
	pools []*http.Transport
}

func newIdentities(upstream *rest.Config) (*identities, error) {
	i := &identities{upstream: upstream, certs: map[[32]byte]http.RoundTripper{}}
	own, err := i.transport(upstream, nil)
	if err != nil {
		return nil, err
	}
	if i.own, err = rest.HTTPWrappersForConfig(upstream, own); err != nil {
		return nil, err
	}
	i.bare, err = i.transport(rest.AnonymousClientConfig(upstream), nil)
	return i, err
}

func (i *identities) transport(cfg *rest.Config, cert *tls.Certificate) (http.RoundTripper, error) {
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, err
	}
	if tlsConfig == nil {
		tlsConfig = &tls.Config{}
	}
	if cert != nil {
		tlsConfig.Certificates = []tls.Certificate{*cert}
	}
	t := &http.Transport{
		TLSClientConfig:   tlsConfig,
		ForceAttemptHTTP2: true,
		// Else the transport asks for gzip where the client did not.
		DisableCompression: true,
		DialContext:        cfg.Dial,
		HTTP2:              &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	i.pools = append(i.pools, t)
	return t, nil
}

// remember keeps the client certificate of cfg, if it has one that can be read.
func (i *identities) remember(cfg *rest.Config) {
	loaded := rest.CopyConfig(cfg)
	if err := rest.LoadTLSFiles(loaded); err != nil || len(loaded.CertData) == 0 {
		return
	}
	cert, err := tls.X509KeyPair(loaded.CertData, loaded.KeyData)
	if err != nil {
		return
	}
	id := sha256.Sum256(cert.Certificate[0])
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, known := i.certs[id]; known {
		return
	}
	if t, err := i.transport(rest.AnonymousClientConfig(i.upstream), &cert); err == nil {
		i.certs[id] = t
	}
}

// of is the transport for a request. As at the API server, a certificate goes
// before a token.
func (i *identities) of(r *http.Request) (http.RoundTripper, error) {
	if len(r.TLS.PeerCertificates) > 0 {
		i.mu.Lock()
		defer i.mu.Unlock()
		if t, known := i.certs[sha256.Sum256(r.TLS.PeerCertificates[0].Raw)]; known {
			return t, nil
		}
		return nil, errUnknownCertificate
	}
	if r.Header.Get("Authorization") != "" {
		return i.bare, nil
	}
	return i.own, nil
}

func (i *identities) close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, t := range i.pools {
		t.CloseIdleConnections()
	}
}

// selfSigned makes a certificate for loopback that is its own authority.
func selfSigned() (tls.Certificate, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: "steadwatch-faultproxy"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(1, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
