package informer

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

const (
	// As of the dialer that client-go uses where none is given
	// (k8s.io/client-go/transport, tlsTransportCache).
	dialTimeout   = 30 * time.Second
	dialKeepAlive = 30 * time.Second
)

// Connection gives the lists and watches of one resource TCP connections of
// their own, so that one which no longer delivers can be left behind.
//
// To stop a watch and to open another one is not enough: both run over the
// HTTP/2 connection that the transport keeps, and where that is what has gone
// silent the new watch is as silent as the old one. To close the connections of
// all resources would end every healthy watch with it.
//
//	connection := informer.NewConnection(config)
//	clients, err := kubernetes.NewForConfig(connection.Config())
//
// One Connection per Informer; a client built from its Config serves nothing
// else. Safe for concurrent use.
type Connection struct {
	config *rest.Config
	err    error // why New refuses it
	dialer *connrotation.Dialer

	mu     sync.Mutex
	closed time.Time
}

// NewConnection copies config and gives the copy a dialer of its own, which
// dials through config.Dial where that is set. A config with a Transport dials for
// itself: New refuses the Connection, as it does one of nil.
func NewConnection(config *rest.Config) *Connection {
	if config == nil {
		return &Connection{config: &rest.Config{}, dialer: connrotation.NewDialer(refuseDial), err: errors.New("was made from nil: give NewConnection the rest.Config that reaches the API server")}
	}
	c := &Connection{config: rest.CopyConfig(config)}
	if config.Transport != nil {
		c.err = errors.New("was made from a rest.Config with a " + ownTransport)
	}
	dial := connrotation.DialFunc(c.config.Dial)
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: dialKeepAlive}).DialContext
	}
	c.dialer = connrotation.NewDialer(dial)
	c.config.Dial = c.dialer.DialContext
	return c
}

// ownTransport says what is wrong with a rest.Config that has one.
const ownTransport = "Transport, whose connections cannot be told apart and closed: leave Transport empty and set TLSClientConfig, Dial or WrapTransport"

func refuseDial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no rest.Config was given")
}

// Config returns what to build this resource's client from. Every client built
// from it has a transport, and so connections, of its own.
func (c *Connection) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Close cuts every connection there is, with the requests that run over them.
// The next request dials anew. A nil Connection has none.
func (c *Connection) Close() {
	c.renew(0)
}

// cutSince reports whether connections were cut since t.
func (c *Connection) cutSince(t time.Time) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed.After(t)
}

// renew is Close unless that was less than age ago. The namespaces of an Informer
// share its connections: those that poll would else end each other's watches before
// these can show that they work.
func (c *Connection) renew(age time.Duration) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.closed) >= age {
		c.closed = now
		c.dialer.CloseAll()
	}
}
