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
	// readTimeout is how long a client may take to send a request: as long as the API
	// server waits for the answer.
	readTimeout = 5 * time.Second
	// idleTimeout is the default. Connecting takes milliseconds.
	idleTimeout = 5 * time.Second
	// farewell is how long it takes to end an idle connection: Go's HTTP/2 waits for a
	// second after it has told the client.
	farewell = 2 * time.Second
	// headerTimeout is how long a client may take for the TLS handshake, and to send
	// headers.
	headerTimeout = 5 * time.Second
)

// Bounds of what connections cost before a request is read. Each API server needs
// one, or a few.
const (
	maxConnections = 512
	maxHeaderBytes = 16 << 10
	// maxStreams is how many requests a connection may have in hand, and bufferBytes how
	// much it may send that nobody has read yet: the least that HTTP/2 allows.
	maxStreams  = 100
	bufferBytes = 64 << 10
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
	// ClientCAs are the authorities of those who may ask; nil for anybody.
	ClientCAs *x509.CertPool
	// ClientNames are the common names of those who may ask. Empty for everybody whose
	// certificate is by ClientCAs.
	ClientNames []string
	// IdleTimeout is how long a connection may be idle before the server asks the
	// client to use another one. A drain takes two seconds longer. Default: 5 s.
	IdleTimeout time.Duration
}

// NeedLeaderElection is false: every replica serves.
func (s *Server) NeedLeaderElection() bool { return false }

// silent is for what anybody could fill a log with: handshakes that failed.
var silent = log.New(io.Discard, "", 0)

// tls says who is served. Who is not is told so in the handshake, before anything of
// a request is read.
func (s *Server) tls() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: s.GetCertificate}
	if s.ClientCAs == nil {
		return config
	}
	config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, s.ClientCAs
	config.VerifyConnection = func(state tls.ConnectionState) error {
		name := state.PeerCertificates[0].Subject.CommonName
		if len(s.ClientNames) > 0 && !slices.Contains(s.ClientNames, name) {
			return fmt.Errorf("the client's certificate is %q's", name)
		}
		return nil
	}
	return config
}

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
		TLSConfig:         s.tls(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout, // also where the body of a request is not wanted
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
	case <-time.After(server.IdleTimeout + farewell):
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stopping the webhook: %w", err)
	}
	return nil
}
