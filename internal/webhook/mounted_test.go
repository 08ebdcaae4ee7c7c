// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/util/cert"

	"github.com/nodegate/nodegate/internal/webhook"
	"github.com/nodegate/nodegate/testcluster/await"
)

const host = "nodegate-webhook.nodegate-system.svc"

// volume is a mounted Secret, as kubelets create it: the files are links into a directory
// that is replaced atomically.
type volume struct {
	*testing.T
	dir     string
	version int
}

func newVolume(t *testing.T) *volume {
	t.Helper()
	v := &volume{T: t, dir: t.TempDir()}
	v.write(nil)
	for _, name := range []string{"tls.crt", "tls.key"} {
		v.must(os.Symlink(filepath.Join("..data", name), filepath.Join(v.dir, name)))
	}
	return v
}

func (v *volume) must(err error) {
	v.Helper()
	if err != nil {
		v.Fatal(err)
	}
}

func (v *volume) write(files map[string][]byte) {
	v.Helper()
	v.version++
	version := "..version-" + strconv.Itoa(v.version)
	v.must(os.Mkdir(filepath.Join(v.dir, version), 0o700))
	for name, content := range files {
		v.must(os.WriteFile(filepath.Join(v.dir, version, name), content, 0o600))
	}
	v.must(os.Symlink(version, filepath.Join(v.dir, "..next")))
	v.must(os.Rename(filepath.Join(v.dir, "..next"), filepath.Join(v.dir, "..data")))
}

// pair returns the files of a certificate for a host.
func (v *volume) pair(host string) map[string][]byte {
	v.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey(host, []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	v.must(err)
	return map[string][]byte{"tls.crt": certificate, "tls.key": key}
}

// TestMounted tests that a certificate may be created late and may be replaced, and that
// the last one is kept while the mounted files are invalid.
func TestMounted(t *testing.T) {
	v := newVolume(t)
	taken := make(chan [2]time.Time, 10)
	m := &webhook.Mounted{
		Dir: v.dir, Host: host, Period: 10 * time.Millisecond, Log: logr.Discard(),
		OnLoad: func(from, until time.Time) { taken <- [2]time.Time{from, until} },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	defer func() {
		cancel()
		v.must(<-ended)
	}()

	if _, err := m.GetCertificate(nil); err == nil {
		t.Error("GetCertificate returns a certificate before there is one")
	}
	if err := m.Ready(); err == nil || !strings.Contains(err.Error(), "run 'nodegate webhook-certificate'") {
		t.Errorf("Ready without a certificate = %v", err)
	}
	first, second := v.pair(host), v.pair(host)
	v.write(first)
	v.must(await.Until(t.Context(), "the first to be served", serves(m, first)))
	if valid := <-taken; valid[0].After(time.Now()) || valid[0].Before(time.Now().AddDate(-1, 0, 0)) || valid[1].Before(time.Now()) {
		t.Errorf("the certificate is valid from %s until %s", valid[0], valid[1])
	}
	v.write(map[string][]byte{"tls.crt": second["tls.crt"], "tls.key": first["tls.key"]})
	v.write(nil)
	v.write(second)
	v.must(await.Until(t.Context(), "the second to be served", serves(m, second)))
	v.must(m.Ready())
}

func serves(m *webhook.Mounted, files map[string][]byte) func(context.Context) error {
	return func(context.Context) error {
		want, err := tls.X509KeyPair(files["tls.crt"], files["tls.key"])
		if err != nil {
			return err
		}
		got, err := m.GetCertificate(nil)
		if err != nil {
			return err
		}
		if !got.Leaf.Equal(want.Leaf) {
			return errors.New("another certificate is served")
		}
		return nil
	}
}

// TestMountedRead tests when the files are read, and that a change or an error is reported
// once. A directory that vanishes does not end Start, and its certificate stays served.
func TestMountedRead(t *testing.T) {
	v := newVolume(t)
	synctest.Test(t, func(t *testing.T) {
		first, second := v.pair(host), v.pair(host) // by the bubble's clock
		v.write(first)
		r := &reads{T: t}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		m := r.mounted(v.dir)
		go func() { ended <- m.Start(ctx) }()
		r.after(0, "at the start", serves(m, first), 1, 0)
		v.write(second)
		r.after(m.Period-1, "before the period has passed", serves(m, first), 1, 0)
		r.after(1, "after the period", serves(m, second), 2, 0)
		v.write(map[string][]byte{"tls.crt": first["tls.crt"], "tls.key": second["tls.key"]})
		r.after(3*m.Period, "with another certificate's key", serves(m, second), 2, 1)
		v.must(os.Rename(v.dir, v.dir+"-moved"))
		r.after(3*m.Period, "without the directory", serves(m, second), 2, 2)
		v.must(os.Rename(v.dir+"-moved", v.dir))
		v.write(first)
		r.after(3*m.Period, "with the directory again", serves(m, first), 3, 2)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Start returned %v", err)
		}
	})
}

// reads counts what a Mounted reports.
type reads struct {
	*testing.T
	loads, errors atomic.Int32
}

func (r *reads) mounted(dir string) *webhook.Mounted {
	log := funcr.New(func(_, line string) {
		if strings.Contains(line, `"error"=`) {
			r.errors.Add(1)
		}
	}, funcr.Options{})
	return &webhook.Mounted{Dir: dir, Host: host, Period: time.Minute, OnLoad: func(time.Time, time.Time) { r.loads.Add(1) }, Log: log}
}

// after advances the bubble's clock, and compares what is served and reported.
func (r *reads) after(d time.Duration, when string, served func(context.Context) error, loads, errors int32) {
	r.Helper()
	if err := await.Pause(r.Context(), d); err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
	if err := served(r.Context()); err != nil || r.loads.Load() != loads || r.errors.Load() != errors {
		r.Errorf("%s: %v; %d loads and %d errors are reported, want %d and %d", when, err, r.loads.Load(), r.errors.Load(), loads, errors)
	}
}

// Start returns if the context ends before there is a certificate.
func TestMountedStops(t *testing.T) {
	m := &webhook.Mounted{Dir: t.TempDir(), Host: host, Log: logr.Discard()}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Start(ctx); err != nil {
		t.Error(err)
	}
}
