// SPDX-License-Identifier: Apache-2.0

package access

import (
	"container/list"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Limits of the memory that all clients of a port together can make the process use, before
// it is known who they are. controller-runtime's own servers accept 1 MiB of headers from any
// number of clients. A bearer token has a few kilobytes.
const (
	maxConnections = 128
	maxHeaderBytes = 32 << 10
	headerTimeout  = 10 * time.Second
	idleTimeout    = 90 * time.Second
	// shutdownTimeout is how long a client that does not end its request can delay the end
	// of the process.
	shutdownTimeout = 5 * time.Second
)

// NewServer returns a server that listens on the address already; without a TLS
// configuration, it serves plain HTTP.
func NewServer(name, address string, handler http.Handler, config *tls.Config) (*manager.Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serving %s: %w", name, err)
	}
	listener = &limited{Listener: listener, open: list.New()}
	if config != nil {
		listener = tls.NewListener(listener, config)
	}
	return &manager.Server{
		Name: name, Listener: listener, ShutdownTimeout: new(shutdownTimeout),
		Server: &http.Server{
			Handler: handler, MaxHeaderBytes: maxHeaderBytes, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		},
	}, nil
}

// limited is a listener with a limited number of open connections. A new connection beyond
// the limit closes the oldest one: if it had to wait instead, clients that keep their
// connections open could keep the kubelet's probes away, and the kubelet would restart the process.
type limited struct {
	net.Listener
	mu   sync.Mutex
	open *list.List // of net.Conn, the oldest one first
}

// Accept implements net.Listener.
func (l *limited) Accept() (net.Conn, error) {
	accepted, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: accepted, in: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open.Len() >= maxConnections {
		_ = l.open.Remove(l.open.Front()).(net.Conn).Close() // its client notices
	}
	c.place = l.open.PushBack(accepted)
	return c, nil
}

// connection is an open connection of the listener.
type connection struct {
	net.Conn
	in    *limited
	place *list.Element
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.in.mu.Lock()
	c.in.open.Remove(c.place) // does nothing if it has been removed
	c.in.mu.Unlock()
	return c.Conn.Close()
}
