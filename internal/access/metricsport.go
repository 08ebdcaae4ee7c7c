// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// MetricsPort configures how a process serves metrics and /nodes/<name>. Every replica
// serves them.
type MetricsPort struct {
	// Address is the address to listen on; "0" disables the port.
	Address string
	// Open serves all clients over plain HTTP. Otherwise only clients that the API server
	// authorizes are served, over TLS.
	Open bool
	// CertificateDir contains the certificate in tls.crt and tls.key. If empty, the
	// process creates a self-signed one in memory.
	CertificateDir string
}

// Server returns a server of the port, which admits only authorized clients to the handler
// unless the port is open. It is nil if the port is disabled.
func (s *MetricsPort) Server(handler http.Handler, reviewer Reviewer, log logr.Logger) (*manager.Server, error) {
	switch {
	case s.Address == "0":
		return nil, nil
	case s.Open:
		return NewServer("metrics", s.Address, handler, nil)
	}
	config, err := s.tls(log)
	if err != nil {
		return nil, err
	}
	return NewServer("metrics", s.Address, New(reviewer, log).Wrap(handler), config)
}

func (s *MetricsPort) tls(log logr.Logger) (*tls.Config, error) {
	getCertificate := selfSigned()
	if s.CertificateDir != "" {
		mounted := &mounted{dir: s.CertificateDir, log: log}
		if err := mounted.load(); err != nil {
			return nil, fmt.Errorf("reading the certificate of the metrics port: %w", err)
		}
		getCertificate = mounted.get
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, GetCertificate: getCertificate,
		NextProtos: []string{"http/1.1"}, // one request at a time from each client
	}, nil
}

// selfSigned returns a function that returns a certificate, which is created on first
// use.
func selfSigned() func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	create := sync.OnceValues(func() (*tls.Certificate, error) {
		certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		if err != nil {
			return nil, fmt.Errorf("creating a certificate for the metrics port: %w", err)
		}
		pair, err := tls.X509KeyPair(certificate, key)
		return &pair, err
	})
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return create() }
}
