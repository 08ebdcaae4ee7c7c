// SPDX-License-Identifier: Apache-2.0

package access

import (
	"crypto/tls"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
)

// readPeriod is the time after which a mounted certificate is read again.
const readPeriod = 10 * time.Second

// mounted is the certificate in a directory in which a kubelet mounts a Secret. It is read
// again when a client connects, at most once in readPeriod. It is not watched, because
// a watch requires an inotify instance: containers with the same user ID share a limited number
// of them on each node, and nodegate must start if there is none left.
type mounted struct {
	dir string
	log logr.Logger

	mu      sync.Mutex
	current *tls.Certificate
	read    time.Time // when the files were last read
	failing bool      // whether that failed, which has been logged
}

// get returns the current certificate, as tls.Config.GetCertificate. load must have succeeded.
func (m *mounted) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.read) >= readPeriod {
		err := m.load()
		if err != nil && !m.failing {
			m.log.Error(err, "cannot read the certificate of the metrics port, keeping the last one")
		}
		m.failing = err != nil
	}
	return m.current, nil
}

// load reads the files. If they are invalid, it keeps the last certificate.
func (m *mounted) load() error {
	m.read = time.Now()
	read, err := tls.LoadX509KeyPair(filepath.Join(m.dir, corev1.TLSCertKey), filepath.Join(m.dir, corev1.TLSPrivateKeyKey))
	if err != nil {
		return err
	}
	m.current = &read
	return nil
}
