// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller"
)

// takeover has two replicas. The watch of NodeGates of the second, which is the standby, can be
// held. It observes gate "enabled" in dry run.
type takeover struct {
	*env
	watch           *lateWatch
	leader, standby *prometheus.Registry
	stopLeader      func()
	enabled         *v1alpha1.NodeGate
}

func newTakeover(t *testing.T) *takeover {
	o := &takeover{env: newEnv(t), watch: &lateWatch{}}
	o.leader, o.stopLeader = o.replica("first", &lateWatch{})
	o.declare(newGate("known", keyA, byLabel("ready")))
	o.enabled = newGate("enabled", keyB, byLabel("ready"))
	o.enabled.Spec.Mode = v1alpha1.ModeDryRun
	o.declare(o.enabled)
	o.standby, _ = o.replica(standbyName, o.watch)
	o.shows(o.standby, "nodegate_watch_up", 1, "nodegates")
	return o
}

const standbyName = "standby"

func (o *takeover) replica(name string, watch *lateWatch) (*prometheus.Registry, func()) {
	metrics := prometheus.NewRegistry()
	return metrics, o.runController(func(p *controller.Process) {
		p.LeaderElect, p.Identity, p.Registerer = true, name, metrics
		p.Config.Wrap(watch.wrap)
	})
}

// enforce enables the gate while the standby's watch is held, and awaits the leader.
func (o *takeover) enforce() {
	o.Helper()
	o.watch.hold()
	o.edit(o.enabled, func() { o.enabled.Spec.Mode = v1alpha1.ModeEnforce })
	o.shows(o.leader, "nodegate_birth_closing_proved", 1, "enabled")
}

// A replica takes over while its watch of NodeGates is late. It waits until it has observed the gates
// as the former leader has, so that it does not open a gate that it still knows in dry run.
func TestTakeoverWaitsForALateWatchOfGates(t *testing.T) {
	o := newTakeover(t)
	o.enforce()
	k := o.kubelet("n1")
	if born := k.register(); !hasTaint(born, keyB) {
		t.Fatalf("the Node was created with taints %v, want %s", keys(born), keyB)
	}
	untainted := k.countUntainted(keyB)
	o.stopLeader()
	o.eventually("the standby holds the Lease", func() error {
		var lease coordinationv1.Lease
		err := o.admin.Get(t.Context(), client.ObjectKey{Namespace: installation.Namespace, Name: v1alpha1.LeaseName}, &lease)
		return cmp.Or(err, unless(ptr.Deref(lease.Spec.HolderIdentity, "") == standbyName))
	})
	o.watch.release()
	o.shows(o.standby, "nodegate_birth_closing_proved", 1, "enabled")
	if n := untainted(); n > 0 {
		t.Errorf("the Node was without its taint in %d states", n)
	}
	k.label("ready")
	k.becomes("enabled", isOpen, keyB)
}

// If the watch is so late that the replica leads without it, the gate still closes on new nodes.
func TestTakeoverWithAWatchOfGatesThatIsTooLate(t *testing.T) {
	o := newTakeover(t)
	o.enforce()
	o.stopLeader()
	o.shows(o.standby, "nodegate_birth_closing_proved", 1, "known") // it has checked the parameter
	if born := o.kubelet("n1").register(); !hasTaint(born, keyB) {
		t.Errorf("the Node was created with taints %v, want %s", keys(born), keyB)
	}
	o.watch.release()
	o.edit(o.enabled, func() { o.enabled.Spec.Mode = v1alpha1.ModeDryRun })
	o.closesAtBirth("known")
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
