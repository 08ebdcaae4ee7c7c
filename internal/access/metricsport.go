// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// MetricsPort configures how a process serves metrics and /nodes/NAME. Every replica
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

// Options returns the options of controller-runtime's server.
func (s *MetricsPort) Options(reviewer Reviewer, log logr.Logger) (o metricsserver.Options, err error) {
	o.BindAddress = s.Address
	if s.Open || s.Address == "0" {
		return o, nil
	}
	o.SecureServing = true
	filter := New(reviewer, log)
	o.FilterProvider = func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
		return func(_ logr.Logger, next http.Handler) (http.Handler, error) { return filter.Wrap(next), nil }, nil
	}
	// Otherwise, controller-runtime reads a certificate from the directory for temporary
	// files.
	getCertificate := selfSigned()
	if s.CertificateDir != "" {
		mounted := &mounted{dir: s.CertificateDir, log: log}
		if err := mounted.load(); err != nil {
			return o, fmt.Errorf("reading the certificate of the metrics port: %w", err)
		}
		getCertificate = mounted.get
	}
	o.TLSOpts = []func(*tls.Config){func(c *tls.Config) {
		c.MinVersion, c.GetCertificate = tls.VersionTLS13, getCertificate
		c.NextProtos = []string{"http/1.1"} // one request at a time from each client
	}}
	return o, nil
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
