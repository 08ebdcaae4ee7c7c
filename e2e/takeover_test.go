// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller"
)

// A replica takes over while its watch of NodeGates is late. The gate that the former leader has
// reported as Ready, and that this replica still observes in dry run, closes on new nodes.
func TestTakeoverWithALateWatchOfGates(t *testing.T) {
	e := newEnv(t)
	replica := func(watch *lateWatch) (*prometheus.Registry, func()) {
		metrics := prometheus.NewRegistry()
		return metrics, e.runController(func(p *controller.Process) {
			p.LeaderElect, p.Registerer = true, metrics
			p.Identity = fmt.Sprintf("with watch %p", watch)
			p.Config.Wrap(watch.wrap)
		})
	}
	leader, stop := replica(&lateWatch{})
	e.declare(newGate("known", keyA, byLabel("ready")))
	enabled := newGate("enabled", keyB, byLabel("ready"))
	enabled.Spec.Mode = v1alpha1.ModeDryRun
	e.declare(enabled)
	watch := &lateWatch{}
	standby, _ := replica(watch)
	e.shows(standby, "nodegate_watch_up", 1, "nodegates")

	watch.hold()
	e.edit(enabled, func() { enabled.Spec.Mode = v1alpha1.ModeEnforce })
	e.shows(leader, "nodegate_birth_closing_proved", 1, "enabled")
	stop()
	e.shows(standby, "nodegate_birth_closing_proved", 1, "known") // it has checked the parameter
	if born := e.kubelet("n1").register(); !hasTaint(born, keyB) {
		t.Errorf("the Node was created with taints %v, want %s", keys(born), keyB)
	}

	watch.release()
	e.edit(enabled, func() { enabled.Spec.Mode = v1alpha1.ModeDryRun })
	e.closesAtBirth("known")
}

// closesAtBirth waits until the birth policy's parameter consists of these gates.
func (e *env) closesAtBirth(gates ...string) {
	e.Helper()
	e.eventually(fmt.Sprintf("the parameter contains %q", gates), func() error {
		return unless(slices.Equal(slices.Sorted(maps.Keys(e.closedAtBirth())), gates))
	})
}

// lateWatch delays what a replica's watches of NodeGates deliver.
type lateWatch struct {
	mu sync.Mutex
	// held is not nil while the watches are held, and closed when they are released.
	held chan struct{}
}

func (w *lateWatch) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = make(chan struct{})
}

func (w *lateWatch) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.held)
	w.held = nil
}

func (w *lateWatch) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err == nil && strings.HasSuffix(r.URL.Path, "/nodegates") && r.URL.Query().Get("watch") != "" {
			response.Body = &lateBody{ReadCloser: response.Body, watch: w, closed: make(chan struct{})}
		}
		return response, err
	})
}

// lateBody is the body of a watch's response.
type lateBody struct {
	io.ReadCloser
	watch  *lateWatch
	close  sync.Once
	closed chan struct{}
}

func (b *lateBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.watch.mu.Lock()
	held := b.watch.held
	b.watch.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-b.closed:
		}
	}
	return n, err
}

func (b *lateBody) Close() error {
	b.close.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}
