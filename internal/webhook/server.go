// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	// idleTimeout is the default. Connecting takes milliseconds.
	idleTimeout = 5 * time.Second
	// farewell is how long it takes to end an idle connection: Go's HTTP/2 waits for a
	// second after it has told the client.
	farewell = 2 * time.Second
	// headerTimeout is how long a client may take to send headers.
	headerTimeout = 5 * time.Second
)

// A Server serves the webhook over TLS 1.3.
//
// Before it stops, it drains. An API server keeps its connection to one replica
// for as long as that is open, and sends a request on it at any moment. If the
// connection ends at this moment the request fails, and the Node is created without
// its taints. So the server goes on serving, sends GOAWAY on each connection, after
// which clients send new requests elsewhere, and closes connections that nobody uses
// any more.
type Server struct {
	// Address is where to listen, such as ":9443".
	Address string
	Handler http.Handler
	// GetCertificate returns what to serve with.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// IdleTimeout is how long a connection may be idle before the server asks the
	// client to use another one. A drain takes two seconds longer. Default: 5 s.
	IdleTimeout time.Duration
}

// NeedLeaderElection is false: every replica serves.
func (s *Server) NeedLeaderElection() bool { return false }

// Start serves until the context ends, and drains.
func (s *Server) Start(ctx context.Context) error {
	listener, err := net.Listen("tcp", s.Address)
	if err != nil {
		return fmt.Errorf("serving the webhook: %w", err)
	}
	var draining atomic.Bool
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if draining.Load() {
				w.Header().Set("Connection", "close") // in HTTP/2, this sends GOAWAY
			}
			s.Handler.ServeHTTP(w, r)
		}),
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: s.GetCertificate},
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       cmp.Or(s.IdleTimeout, idleTimeout),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(listener, "", "") }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving the webhook: %w", err)
	case <-ctx.Done():
	}
	draining.Store(true)
	select {
	case err := <-failed:
		return fmt.Errorf("serving the webhook: %w", err)
	case <-time.After(server.IdleTimeout + farewell):
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stopping the webhook: %w", err)
	}
	return nil
}
