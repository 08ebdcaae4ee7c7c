// SPDX-License-Identifier: Apache-2.0

package access

import (
	"bytes"
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
)

// mount writes a new certificate for a host into a directory.
func mount(t *testing.T, dir, host string) {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// served returns a function that returns the certificate that is served from a directory.
func served(t *testing.T, dir string, log logr.Logger) func() *tls.Certificate {
	t.Helper()
	config, err := (&MetricsPort{CertificateDir: dir}).tls(log)
	if err != nil {
		t.Fatal(err)
	}
	return func() *tls.Certificate {
		t.Helper()
		c, err := config.GetCertificate(nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
}

// A certificate that is replaced is served after a while. If it cannot be read, the last one is served,
// and that is logged once.
func TestMountedCertificateIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		mount(t, dir, "first")
		var log []string
		certificate := served(t, dir, funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{}))
		serves := func(host string) {
			t.Helper()
			if err := certificate().Leaf.VerifyHostname(host); err != nil {
				t.Error(err)
			}
		}
		serves("first")
		mount(t, dir, "second")
		serves("first") // not read again yet
		<-time.After(readPeriod)
		serves("second")
		before := certificate()
		for range 10 {
			if err := os.WriteFile(filepath.Join(dir, corev1.TLSCertKey), []byte("broken"), 0o600); err != nil {
				t.Fatal(err)
			}
			<-time.After(readPeriod)
			if !bytes.Equal(certificate().Certificate[0], before.Certificate[0]) {
				t.Error("another certificate is served although it cannot be read")
			}
		}
		if len(log) != 1 || !strings.Contains(log[0], "keeping the last one") {
			t.Errorf("log %q, want one line", log)
		}
		mount(t, dir, "third")
		<-time.After(readPeriod)
		serves("third")
	})
}
