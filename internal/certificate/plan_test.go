// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"crypto/x509"
	"testing"
	"time"
)

// The order of the steps: authority, publication, serving certificate.
func TestSteps(t *testing.T) {
	now, hosts := time.Now(), []string{host}
	var m material
	step := func(what string, wantChange bool, p published) {
		t.Helper()
		changed, err := m.advance(now, hosts, p)
		if err != nil || changed != wantChange {
			t.Fatalf("%s: changed %t, %v", what, changed, err)
		}
	}
	step("an authority first", true, published{})
	first := m.signer.Leaf
	step("nothing is served before it is published", false, published{})
	step("then, at once, for there is nothing to lose", true, published{authorities: []*x509.Certificate{first}})
	if m.serving == nil || m.serving.Leaf.CheckSignatureFrom(first) != nil {
		t.Fatal("there is no serving certificate of the authority")
	}
	step("all is well", false, published{authorities: []*x509.Certificate{first}, settled: true})

	now = now.Add(servingLife * 3 / 4)
	step("not while somebody may not have heard", false, published{authorities: []*x509.Certificate{first}})
	step("a new serving certificate", true, published{authorities: []*x509.Certificate{first}, settled: true})

	now = first.NotBefore.Add(authorityLife * 3 / 4)
	m.serving, _ = newServing(m.signer, hosts, now)
	step("a new authority beside the old one", true, published{authorities: []*x509.Certificate{first}, settled: true})
	second := m.signer.Leaf
	if second.Equal(first) || !contains(m.authorities, first) || m.serving.Leaf.CheckSignatureFrom(first) != nil {
		t.Fatal("the old authority has gone too soon")
	}
	both := []*x509.Certificate{second, first}
	step("it is published, and not known everywhere", false, published{authorities: both})
	step("it signs", true, published{authorities: both, settled: true})
	if m.serving.Leaf.CheckSignatureFrom(second) != nil {
		t.Fatal("the serving certificate is not of the new authority")
	}

	now = first.NotAfter.Add(time.Minute)
	m.serving, _ = newServing(m.signer, hosts, now)
	step("the old one has expired", true, published{authorities: both, settled: true})
	if len(m.authorities) != 1 {
		t.Errorf("%d authorities are trusted", len(m.authorities))
	}
	hosts = append(hosts, "127.0.0.1")
	step("it is called by another name", true, published{authorities: both[:1]})
	if m.serving.Leaf.VerifyHostname("127.0.0.1") != nil {
		t.Error("the serving certificate is not for it")
	}
}

// What was read before another leader wrote is not written over what it wrote.
func TestPublicationOfYesterday(t *testing.T) {
	w := newWorld(t)
	k := NewKeeper(w.options())
	stale := w.configuration()
	if wrote, err := k.publish(t.Context(), w.configuration(), []byte("new")); err != nil || !wrote {
		t.Fatal(wrote, err)
	}
	if wrote, err := k.publish(t.Context(), stale, []byte("old")); err == nil || wrote {
		t.Errorf("wrote %t, error %v", wrote, err)
	}
	if got := w.configuration().Webhooks[0].ClientConfig.CABundle; !bytes.Equal(got, []byte("new")) {
		t.Errorf("%q is published", got)
	}
}
