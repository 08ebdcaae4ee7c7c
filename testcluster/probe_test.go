// SPDX-License-Identifier: Apache-2.0

package testcluster

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
)

// An etcd before 3.5.11 has no /readyz. Such an etcd may be installed, and becomes ready.
func TestProbeOfAnOldEtcd(t *testing.T) {
	credentials, err := loadCredentials(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := tls.LoadX509KeyPair(credentials.etcdServing.certificate, credentials.etcdServing.key)
	if err != nil {
		t.Fatal(err)
	}
	status := http.StatusServiceUnavailable
	mux := http.NewServeMux()
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
	etcd := httptest.NewUnstartedServer(mux)
	etcd.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	etcd.StartTLS()
	defer etcd.Close()

	c := &Cluster{credentials: credentials, ports: map[Component]int{Etcd: etcd.Listener.Addr().(*net.TCPAddr).Port}}
	if err := c.probe(t.Context(), Etcd); err == nil {
		t.Error("etcd is ready without being healthy")
	}
	status = http.StatusOK
	if err := c.probe(t.Context(), Etcd); err != nil {
		t.Error(err)
	}
}
