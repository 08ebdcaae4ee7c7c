// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/x509"
	"time"
)

// published is what the API server is told to trust at present.
type published struct {
	authorities []*x509.Certificate
	// settled tells whether the newest authority of the material has been among
	// them for so long that every API server has heard of it.
	settled bool
}

// advance takes the material one step further, and tells whether that changed
// it. Every step leaves the webhook working, so that a process may die, and
// another go on, after any of them.
//
//  1. A new authority when the newest has passed two thirds of its life. It signs
//     nothing yet; the older ones stay until they have expired.
//  2. A new serving certificate when the present one has passed two thirds of
//     its life, or there is a newer authority: of that one, and not before every
//     API server has heard of it.
func (m *material) advance(now time.Time, hosts []string, p published) (bool, error) {
	changed := m.tidy(now, p)
	if m.signer == nil || due(m.signer.Leaf, now) {
		signer, err := newAuthority(now)
		if err != nil {
			return false, err
		}
		m.signer = signer
		m.authorities = append([]*x509.Certificate{signer.Leaf}, m.authorities...)
		return true, nil
	}
	if m.current(now, hosts) || !contains(p.authorities, m.signer.Leaf) {
		return changed, nil
	}
	if m.usable(now, hosts) && !p.settled {
		return changed, nil
	}
	serving, err := newServing(m.signer, hosts, now)
	if err != nil {
		return false, err
	}
	m.serving = serving
	return true, nil
}

// tidy drops expired authorities, and takes up those of ours that are published:
// if somebody emptied the Secret, replicas go on serving with what they had.
func (m *material) tidy(now time.Time, p published) (changed bool) {
	var kept []*x509.Certificate
	for _, c := range m.authorities {
		if !expired(c, now) {
			kept = append(kept, c)
		}
	}
	changed = len(kept) < len(m.authorities)
	if m.signer != nil && expired(m.signer.Leaf, now) {
		m.signer, changed = nil, true
	}
	for _, c := range p.authorities {
		if c.IsCA && c.Subject.CommonName == authorityName && !expired(c, now) && !contains(kept, c) {
			kept, changed = append(kept, c), true
		}
	}
	m.authorities = kept
	return changed
}

// usable tells whether the API server accepts the serving certificate.
func (m *material) usable(now time.Time, hosts []string) bool {
	if m.serving == nil {
		return false
	}
	roots := x509.NewCertPool()
	for _, c := range m.authorities {
		roots.AddCert(c)
	}
	if _, err := m.serving.Leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now}); err != nil {
		return false
	}
	for _, host := range hosts {
		if m.serving.Leaf.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

// current tells whether the serving certificate needs no successor.
func (m *material) current(now time.Time, hosts []string) bool {
	return m.usable(now, hosts) && !due(m.serving.Leaf, now) && m.serving.Leaf.CheckSignatureFrom(m.signer.Leaf) == nil
}
