package faultproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// Config says where a Proxy leads and how it is reached.
type Config struct {
	// Upstream is the API server, and the credentials for requests that bring
	// none. Required.
	Upstream *rest.Config

	// HTTP1 offers HTTP/1.1 only. Otherwise the client chooses, and client-go
	// chooses HTTP/2.
	HTTP1 bool

	// ForceJSON asks the API server for JSON whatever the client accepts.
	ForceJSON bool

	// OpaqueResourceVersions replaces every resourceVersion by a string that
	// cannot be compared, and back again on the way to the API server. "" and
	// "0" keep their meaning. Implies ForceJSON.
	OpaqueResourceVersions bool
	// ClearResources, by plural, keep their resourceVersions all the same: those that
	// a client updates by protobuf, in which they cannot be put back.
	ClearResources []string

	// ListenAddress is host:port. "": a free port on loopback.
	ListenAddress string
}

// Proxy is a running proxy. Its methods may be called concurrently.
type Proxy struct {
	cfg      Config
	address  string
	caPEM    []byte
	server   *http.Server
	identity *identities
	upstream atomic.Pointer[url.URL]

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	joined sync.WaitGroup // handlers and accept loops

	hole gate // shut by BlackHole

	opened, resets    atomic.Int64
	received, written atomic.Int64

	mu        sync.Mutex
	closed    bool
	listener  net.Listener // nil after Refuse
	conns     map[*conn]struct{}
	faults    []*Fault
	exchanges map[*exchange]struct{}
	log       []*exchange
}

// Start starts a proxy. Close ends it.
func Start(cfg Config) (*Proxy, error) {
	if cfg.Upstream == nil {
		return nil, errors.New("fault proxy: Config.Upstream is nil: set it to the API server's rest.Config")
	}
	if cfg.OpaqueResourceVersions {
		cfg.ForceJSON = true
	}
	if cfg.ListenAddress == "" {
		cfg.ListenAddress = "127.0.0.1:0"
	}
	cert, caPEM, err := selfSigned()
	if err != nil {
		return nil, fmt.Errorf("make the fault proxy's certificate: %w", err)
	}
	ids, err := newIdentities(cfg.Upstream)
	if err != nil {
		return nil, fmt.Errorf("fault proxy: Config.Upstream: %w", err)
	}
	p := &Proxy{
		cfg: cfg, caPEM: caPEM, identity: ids,
		conns:     map[*conn]struct{}{},
		exchanges: map[*exchange]struct{}{},
	}
	if err := p.SetUpstream(cfg.Upstream.Host); err != nil {
		return nil, err
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(!cfg.HTTP1)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.server = &http.Server{
		Handler:     http.HandlerFunc(p.serve),
		Protocols:   &protocols,
		HTTP2:       &http.HTTP2Config{MaxConcurrentStreams: 1000},
		BaseContext: func(net.Listener) context.Context { return p.ctx },
		ConnContext: withConn,
		// Any certificate is asked for and none is verified: it only tells
		// which of the known clients this is.
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert},
		// Cut connections are this proxy's trade.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	if err := p.listen(cfg.ListenAddress); err != nil {
		p.cancel()
		return nil, err
	}
	return p, nil
}

func (p *Proxy) listen(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("fault proxy: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.listener != nil {
		_ = l.Close()
		return nil
	}
	p.listener = l
	if p.address == "" { // Later listeners have the same.
		p.address = l.Addr().String()
	}
	p.joined.Go(func() {
		// Returns when the listener is closed, by Refuse or Close.
		_ = p.server.ServeTLS(&trackingListener{Listener: l, p: p}, "", "")
	})
	return nil
}

// URL is the proxy's address as a client's host.
func (p *Proxy) URL() string { return "https://" + p.address }

// SetUpstream sends new requests to another API server of the same cluster, such
// as after a load balancer's change of mind. Open watches stay where they are.
func (p *Proxy) SetUpstream(host string) error {
	cfg := rest.CopyConfig(p.cfg.Upstream)
	cfg.Host = host
	u, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return fmt.Errorf("fault proxy: upstream %q: %w", host, err)
	}
	p.upstream.Store(u)
	return nil
}

// ClientConfig is cfg with the proxy in place of the API server and the same
// credentials, dialer, user agent and limits. cfg itself is not changed.
//
// A cfg.Transport cannot be pointed elsewhere and is dropped; WrapTransport stays.
func (p *Proxy) ClientConfig(cfg *rest.Config) *rest.Config {
	out := rest.CopyConfig(cfg)
	p.identity.remember(cfg)
	out.Host = p.URL()
	out.Transport = nil
	out.Insecure, out.ServerName = false, ""
	out.CAFile, out.CAData = "", p.caPEM
	if p.cfg.ForceJSON {
		out.ContentType, out.AcceptContentTypes = "application/json", "application/json"
	}
	return out
}

// Refuse makes the proxy unreachable: open connections are reset, new ones
// refused, until Up.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	p.ResetConnections()
}

// BlackHole makes the proxy silent: open connections stay open, new ones are
// accepted, and no byte is read from or written to any of them, until Up. Not
// even HTTP/2 pings are answered.
func (p *Proxy) BlackHole() { p.hole.shutOnce() }

// Up undoes Refuse, on the same port, and BlackHole.
func (p *Proxy) Up() error {
	p.hole.openAll()
	p.mu.Lock()
	up := p.listener != nil
	p.mu.Unlock()
	if up {
		return nil
	}
	return p.listen(p.address)
}

// ResetConnections resets the connections that are open now.
func (p *Proxy) ResetConnections() {
	p.mu.Lock()
	conns := make([]*conn, 0, len(p.conns))
	for c := range p.conns {
		conns = append(conns, c)
	}
	p.mu.Unlock()
	for _, c := range conns {
		c.reset()
	}
}

// Close ends everything at once and waits until it has ended. A Rule.Hold that
// ignores its context holds it up.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	p.cancel()
	p.ResetConnections()
	_ = p.server.Close()
	p.joined.Wait()
	p.identity.close()
}
