// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
)

const (
	// readTimeout limits the time in which a client must send a request. The API server
	// waits for the answer as long as that.
	readTimeout = 5 * time.Second
	// idleTimeout is the default of Server.IdleTimeout. Connecting takes milliseconds.
	idleTimeout = 5 * time.Second
	// closeIdle is the time needed to close an idle connection: after GOAWAY, Go's HTTP/2
	// server waits for a second.
	closeIdle = 2 * time.Second
	// headerTimeout limits the time for the TLS handshake and the headers.
	headerTimeout = 5 * time.Second
)

// Limits of the cost of connections before a request is read. Each API server needs one
// connection, or a few.
const (
	maxConnections = 512
	maxHeaderBytes = 16 << 10
	// maxStreams limits the concurrent requests of a connection, and bufferBytes the data
	// that it may send before the server reads it. This is the minimum in HTTP/2.
	maxStreams  = 100
	bufferBytes = 64 << 10
)

// A Server serves the webhook over TLS 1.3.
//
// Before it stops, it drains its connections. An API server keeps its connection to a
// replica open, and can send a request on it at any moment. If the connection is closed
// at that moment, the request fails, and the Node is created without its taints. The
// server therefore continues to serve, sends GOAWAY on each connection, so that clients
// open new ones to other replicas, and closes idle connections.
type Server struct {
	// Address is the address to listen on, such as ":9443".
	Address string
	Handler http.Handler
	// GetCertificate returns the serving certificate.
	GetCertificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// ClientCAs are the authorities of client certificates. If nil, clients need none.
	ClientCAs *x509.CertPool
	// ClientNames are the common names of the clients that are served. If empty, every
	// client with a certificate of ClientCAs is served.
	ClientNames []string
	// IdleTimeout is the time after which an idle connection is closed. Draining takes two
	// seconds longer. Defaults to 5 s.
	IdleTimeout time.Duration
}

// NeedLeaderElection returns false, because every replica serves.
func (s *Server) NeedLeaderElection() bool { return false }

// silent discards errors of handshakes, with which every client could fill the log.
var silent = log.New(io.Discard, "", 0)

// tls returns the TLS configuration. Clients that are not served are rejected in the
// handshake, before a request is read.
func (s *Server) tls() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: s.GetCertificate}
	if s.ClientCAs == nil {
		return config
	}
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, s.ClientCAs
	config.VerifyConnection = func(state tls.ConnectionState) error {
		name := state.PeerCertificates[0].Subject.CommonName
		if len(s.ClientNames) > 0 && !slices.Contains(s.ClientNames, name) {
			return fmt.Errorf("client %q may not call the webhook", name)
		}
		return nil
	}
	return config
}

// Start serves until the context ends, then drains connections.
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
		TLSConfig:         s.tls(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout, // also limits bodies that the handler does not read
		WriteTimeout:      2 * readTimeout,
		IdleTimeout:       cmp.Or(s.IdleTimeout, idleTimeout),
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerConnection: bufferBytes, MaxReceiveBufferPerStream: bufferBytes,
		},
		ErrorLog: silent,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(netutil.LimitListener(listener, maxConnections), "", "") }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving the webhook: %w", err)
	case <-ctx.Done():
	}
	draining.Store(true)
	select {
	case err := <-failed:
		return fmt.Errorf("serving the webhook: %w", err)
	case <-time.After(server.IdleTimeout + closeIdle):
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stopping the webhook: %w", err)
	}
	return nil
}
