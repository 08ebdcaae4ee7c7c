// SPDX-License-Identifier: Apache-2.0

package standin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
)

// A Server stands in for an API server until Stop is called.
type Server struct {
	fleet    *Fleet
	upstream *httputil.ReverseProxy
	server   *http.Server
	url      string
	ca       []byte
	stop     context.CancelFunc
	done     chan error

	mu     sync.Mutex
	counts Counts
}

// Counts are the requests that came in.
type Counts struct {
	// WatchLists are watches that asked for the initial state, Watches the others.
	WatchLists, Watches int
	// Pages are lists, or parts of one.
	Pages int
	// Writes are requests that would have changed one of the fleet's objects. They
	// were refused.
	Writes int
	// Initial counts the objects that were sent as part of an initial state, and
	// InitialBytes their size in protobuf. Heartbeats counts those sent after it.
	Initial, InitialBytes, Heartbeats int
	// PassedOn are requests that the real API server answered.
	PassedOn int
}

// Start starts a stand-in on a free port of the loopback interface. It forwards
// all requests that it does not answer itself to the API server of the
// configuration, with the client's token. Client certificates cannot be
// forwarded.
func Start(fleet Fleet, real *rest.Config) (*Server, error) {
	s := &Server{fleet: &fleet, done: make(chan error, 1)}
	var err error
	if s.upstream, err = newUpstream(real); err != nil {
		return nil, fmt.Errorf("starting the stand-in: %w", err)
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return nil, fmt.Errorf("starting the stand-in: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("starting the stand-in: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the stand-in: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop, s.ca, s.url = stop, certificate, "https://"+listener.Addr().String()
	s.server = &http.Server{
		Handler:           s.routes(),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ReadHeaderTimeout: 10 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0), // of clients that went away
	}
	go func() { s.done <- s.server.ServeTLS(listener, "", "") }()
	return s, nil
}

// newUpstream returns a proxy to an API server, which streams the responses.
func newUpstream(real *rest.Config) (*httputil.ReverseProxy, error) {
	target, err := url.Parse(real.Host)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the API server: %w", err)
	}
	trust, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: real.CAData}})
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of the API server: %w", err)
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     &http.Transport{TLSClientConfig: trust, ForceAttemptHTTP2: true},
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
	}, nil
}

// Config returns the client configuration with the stand-in as the server.
func (s *Server) Config(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Host, config.CAData = s.url, s.ca
	return config
}

// Stop ends all requests, and the server.
func (s *Server) Stop() error {
	s.stop()
	if err := s.server.Close(); err != nil {
		return fmt.Errorf("stopping the stand-in: %w", err)
	}
	if err := <-s.done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving in an API server's stead: %w", err)
	}
	return nil
}

// Counts returns the number of requests so far.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

func (s *Server) count(add func(*Counts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add(&s.counts)
}
