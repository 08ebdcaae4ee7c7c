// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// authority signs certificates of clients.
type authority struct {
	*testing.T
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func (a *authority) issue(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.Fatal(err)
	}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		a.Fatal(err)
	}
	return certificate, key
}

func newAuthority(t *testing.T) *authority {
	a := &authority{T: t}
	a.certificate, a.key = a.issue(&x509.Certificate{
		Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

func (a *authority) client(name string) []tls.Certificate {
	c, key := a.issue(&x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return []tls.Certificate{{Certificate: [][]byte{c.Raw}, PrivateKey: key}}
}

// If client certificates are required, only the API server is served. Other clients are
// rejected before a request is read.
func TestOnlyTheAPIServer(t *testing.T) {
	ours, others := newAuthority(t), newAuthority(t)
	for name, test := range map[string]struct {
		names  []string
		client []tls.Certificate
		served bool
	}{
		"the API server":                 {[]string{"apiserver"}, ours.client("apiserver"), true},
		"any name of the authority":      {nil, ours.client("other"), true},
		"another name of the authority":  {[]string{"apiserver"}, ours.client("other"), false},
		"that name of another authority": {[]string{"apiserver"}, others.client("apiserver"), false},
		"any name of another authority":  {nil, others.client("apiserver"), false},
		"without a certificate":          {nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			pool := x509.NewCertPool()
			pool.AddCert(ours.certificate)
			asked := false
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				asked = true
				_, _ = io.WriteString(w, "yes")
			}))
			certificates := httptest.NewUnstartedServer(nil)
			certificates.StartTLS()
			defer certificates.Close()
			server.TLS = (&Server{
				ClientCAs: pool, ClientNames: test.names,
				GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificates.TLS.Certificates[0], nil },
			}).tls()
			server.Config.ErrorLog = silent
			server.StartTLS()
			defer server.Close()
			config := insecure.Clone()
			config.Certificates = test.client
			c := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
			response, err := c.Get(server.URL)
			if err == nil {
				response.Body.Close()
			}
			if (err == nil) != test.served || asked != test.served {
				t.Errorf("served %t, %v", asked, err)
			}
		})
	}
}
