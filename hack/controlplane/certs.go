package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certLifetime outlives any demo that somebody forgot to take down.
const certLifetime = 10 * 365 * 24 * time.Hour

// authority is the one certificate authority of a control plane: it signs the
// serving certificates and the client certificates, which carry the user's
// name and groups.
type authority struct {
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	certPEM []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate the CA's key: %w", err)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "steadwatch-controlplane-ca"},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	a := &authority{cert: template, key: key}
	der, err := a.sign(template, key.Public())
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("parse the CA's certificate: %w", err)
	}
	a.certPEM = encodePEM("CERTIFICATE", der)
	return a, nil
}

func (a *authority) sign(template *x509.Certificate, public crypto.PublicKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("choose a serial number: %w", err)
	}
	template.SerialNumber = serial
	// An hour back, for a clock that a suspended laptop sets back.
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(certLifetime)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of %q: %w", template.Subject.CommonName, err)
	}
	return der, nil
}

// issue returns a certificate and its key, PEM encoded.
func (a *authority) issue(template *x509.Certificate) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate a key: %w", err)
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := a.sign(template, key.Public())
	if err != nil {
		return nil, nil, err
	}
	keyPEM, err = encodeKey(key)
	return encodePEM("CERTIFICATE", der), keyPEM, err
}

func (a *authority) serving() (certPEM, keyPEM []byte, err error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback, net.ParseIP(serviceIP)},
	})
}

func (a *authority) client(user string, groups []string) (certPEM, keyPEM []byte, err error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	return encodePEM("PRIVATE KEY", der), nil
}

// writePKI writes what the API servers and kube-controller-manager read from
// files: ca.crt, apiserver.{crt,key} and sa.{key,pub}.
func writePKI(dir string, ca *authority) error {
	servingCert, servingKey, err := ca.serving()
	if err != nil {
		return err
	}
	sa, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generate the service accounts' key: %w", err)
	}
	saKey, err := encodeKey(sa)
	if err != nil {
		return err
	}
	saPublic, err := x509.MarshalPKIXPublicKey(sa.Public())
	if err != nil {
		return fmt.Errorf("encode the service accounts' public key: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the certificates' folder: %w", err)
	}
	for name, data := range map[string][]byte{
		"ca.crt":        ca.certPEM,
		"apiserver.crt": servingCert,
		"apiserver.key": servingKey,
		"sa.key":        saKey,
		"sa.pub":        encodePEM("PUBLIC KEY", saPublic),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return fmt.Errorf("write a certificate: %w", err)
		}
	}
	return nil
}
