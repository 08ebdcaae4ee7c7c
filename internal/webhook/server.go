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
	"time"

	"golang.org/x/net/netutil"
)

const (
	// readTimeout limits the time in which a client must send a request. The API server
	// waits for the answer as long as that.
	readTimeout = 5 * time.Second
	// drainTime is the default of Server.DrainTime.
	drainTime = 7 * time.Second
	// headerTimeout limits the time for the TLS handshake and the headers.
	headerTimeout = 5 * time.Second
)

// Limits of the cost of connections before a request is read. Each Node that an API server
// creates needs a connection for some milliseconds. At the limit, connections wait.
const (
	maxConnections = 512
	maxHeaderBytes = 16 << 10
)

// A Server serves the webhook over TLS 1.3.
//
// API servers call webhooks over HTTP/1.1, and keep a connection for 90 seconds after a
// request. If the server closes it while the next request is on its way, as when it stops,
// that request fails, and the Node is created without its taints. Each connection is
// therefore used for one request only, which costs a TLS handshake for each Node.
//
// Before the server stops, it continues to serve for some time, because API servers may
// connect to it until they know that it is no endpoint of the Service.
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
	// DrainTime is the time for which the server continues to serve when it is stopped.
	// Defaults to 7 s.
	DrainTime time.Duration
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

// Start serves until the context ends, and for DrainTime after that.
func (s *Server) Start(ctx context.Context) error {
	listener, err := net.Listen("tcp", s.Address)
	if err != nil {
		return fmt.Errorf("serving the webhook: %w", err)
	}
	server := &http.Server{
		Handler:           s.Handler,
		Protocols:         new(http.Protocols),
		TLSConfig:         s.tls(),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout, // also limits bodies that the handler does not read
		WriteTimeout:      2 * readTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          silent,
	}
	server.Protocols.SetHTTP1(true) // HTTP/2 is not needed
	server.SetKeepAlivesEnabled(false)
	failed := make(chan error, 1)
	go func() { failed <- server.ServeTLS(netutil.LimitListener(listener, maxConnections), "", "") }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving the webhook: %w", err)
	case <-ctx.Done():
	}
	select {
	case err := <-failed:
		return fmt.Errorf("serving the webhook: %w", err)
	case <-time.After(cmp.Or(s.DrainTime, drainTime)):
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stopping the webhook: %w", err)
	}
	return nil
}
