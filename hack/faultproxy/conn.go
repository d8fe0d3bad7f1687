package faultproxy

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
)

// gate lets through while it is open, which is its zero value. It may be shut
// several times and is open again after as many calls of open.
type gate struct {
	mu     sync.Mutex
	shuts  int
	opened chan struct{} // closed when the gate opens; nil while open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shuts++; g.shuts == 1 {
		g.opened = make(chan struct{})
	}
}

func (g *gate) shutOnce() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shuts == 0 {
		g.shuts, g.opened = 1, make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shuts == 0 {
		return
	}
	if g.shuts--; g.shuts == 0 {
		close(g.opened)
		g.opened = nil
	}
}

func (g *gate) openAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shuts > 0 {
		g.shuts = 0
		close(g.opened)
		g.opened = nil
	}
}

func (g *gate) blocked() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.opened
}

// conn is a client's TCP connection, below TLS.
type conn struct {
	*net.TCPConn
	p      *Proxy
	number int64 // from 1
	silent gate

	once   sync.Once
	closed chan struct{}
}

// pass blocks while the connection is silenced.
func (c *conn) pass() error {
	for {
		hole, silent := c.p.hole.blocked(), c.silent.blocked()
		if hole == nil {
			hole = silent
		}
		if hole == nil {
			return nil
		}
		select {
		case <-hole:
		case <-c.closed:
			return net.ErrClosed
		case <-c.p.ctx.Done():
			return net.ErrClosed
		}
	}
}

func (c *conn) Read(b []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	n, err := c.TCPConn.Read(b)
	c.p.received.Add(int64(n))
	// Silenced while it waited for these bytes: they are held back too.
	if gone := c.pass(); gone != nil {
		return 0, gone
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	if err := c.pass(); err != nil {
		return 0, err
	}
	n, err := c.TCPConn.Write(b)
	c.p.written.Add(int64(n))
	return n, err
}

func (c *conn) Close() error {
	err := net.ErrClosed
	c.once.Do(func() {
		close(c.closed)
		c.p.mu.Lock()
		delete(c.p.conns, c)
		c.p.mu.Unlock()
		err = c.TCPConn.Close()
	})
	return err
}

// reset closes with a RST in place of a FIN.
func (c *conn) reset() {
	select {
	case <-c.closed:
		return
	default:
	}
	c.p.resets.Add(1)
	_ = c.SetLinger(0)
	_ = c.Close()
}

type trackingListener struct {
	net.Listener
	p *Proxy
}

func (l *trackingListener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{TCPConn: raw.(*net.TCPConn), p: l.p, number: l.p.opened.Add(1), closed: make(chan struct{})}
	l.p.mu.Lock()
	l.p.conns[c] = struct{}{}
	// Close and Refuse reset what is in conns, once.
	late := l.p.listener != l.Listener
	l.p.mu.Unlock()
	if late {
		c.reset()
	}
	return c, nil
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c.(*tls.Conn).NetConn().(*conn))
}

func connOf(ctx context.Context) *conn { return ctx.Value(connKey{}).(*conn) }
