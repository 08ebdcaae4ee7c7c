// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller"
)

// Defects that Cilium's users reported. docs/from-cilium.md also names tests in other files.

// Cilium's operator does not observe deletions of pods, and does nothing on nodes without
// agent: a node whose agent was deleted and not replaced stays open.
func TestSeedCiliumAgentDeletedAndNotReplaced(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("agent")
	e.declare(strictly(newGate("agent", keyA, byDaemonSet("agent"))))
	k, pod := e.openNode("n1", ds)
	e.must(e.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	k.becomes("agent", isClosed, keyA)
	k.holds("agent", isClosed)
}

// A terminating agent is still Ready. Cilium's operator considers it as running, because its
// cache of pods does not contain the deletion timestamp.
func TestSeedCiliumTerminatingAgentDoesNotOpen(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	k := e.kubelet("n1")
	k.register()
	pod := k.daemonPod(ds)
	k.run(pod, false)
	e.must(e.admin.Delete(t.Context(), pod))
	e.must(e.admin.Get(t.Context(), client.ObjectKeyFromObject(pod), pod))
	k.run(pod, true)
	k.holds("agent", isClosed)
}

// Nodes on which no agent was ever created stayed tainted for weeks, and nothing reported it:
// METR/hawk#1335.
func TestSeedCiliumNodeWithoutAgentIsTold(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.agent()
	e.kubelet("n1").register()
	e.waitsFor("agent", "n1", v1alpha1.ReadingPodMissing)
	if w := e.readGate("agent").Status.Waiting; len(w) != 1 {
		t.Errorf("waiting: %+v, want one node", w)
	}
}

// If Cilium's operator still runs with its defaults, it removes the key when the agent is
// ready, as nodegate does, and adds it again when the agent is not. nodegate reverts this
// once, and reports the other writer.
func TestSeedCiliumOperatorStillRunning(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	k, pod := e.openNode("n1", ds)
	k.run(pod, false) // with OnReboot, this does not close the gate
	set := func() {
		k.must(k.editTaints(t.Context(), "n1", "cilium-operator-generic", func(taints []corev1.Taint) []corev1.Taint {
			return append(without(taints, keyA), corev1.Taint{Key: keyA, Effect: corev1.TaintEffectNoSchedule})
		}))
	}
	set()
	k.becomes("agent", isOpen, keyA)
	set()
	e.contended("agent")
}

// Cilium's operator filled its log with messages about deleted nodes. nodegate logs nothing
// about a node that is deleted while its gate is about to open.
func TestSeedCiliumDeletedNodesAreForgotten(t *testing.T) {
	e := newEnv(t)
	var mu sync.Mutex
	var lines []string
	pending := &deletesBeforePatch{api: e.admin, deleted: make(map[string]chan struct{})}
	e.runController(func(p *controller.Process) {
		p.Config.Wrap(pending.wrap)
		p.Options.Log = funcr.New(func(_, line string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, line)
		}, funcr.Options{})
	})
	ds := e.agent()
	const n = 20
	for i := range n {
		e.deletedDuringPatch(pending, fmt.Sprintf("gone-%d", i), ds)
	}
	e.settled()
	late := 0
	for _, event := range e.loggedSoFar() {
		if event.Verb == "patch" && strings.HasPrefix(event.ObjectRef.Name, "gone-") && event.ResponseStatus.Code == http.StatusNotFound {
			late++
		}
	}
	if late < n {
		t.Errorf("%d patches of deleted nodes were sent, want at least one for each of %d", late, n)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, line := range lines {
		if strings.Contains(line, `"gone-`) && !strings.Contains(line, `"gate opened"`) {
			t.Errorf("a deleted node is logged: %s", line)
		}
	}
}

// deletedDuringPatch registers a node and deletes it just before the controller's patch that
// opens it is sent.
func (e *env) deletedDuringPatch(pending *deletesBeforePatch, node string, ds *appsv1.DaemonSet) {
	k := e.kubelet(node)
	k.register()
	deleted := pending.expect(k.name)
	pod := k.daemonPod(ds)
	k.run(pod, true)
	e.eventually("the Node is deleted while a write of it is pending", func() error {
		select {
		case <-deleted:
			return nil
		default:
			return errNotYet
		}
	})
	e.must(e.admin.Delete(e.Context(), pod, client.GracePeriodSeconds(0)))
}

// deletesBeforePatch deletes a Node just before the controller's next patch of it is sent.
type deletesBeforePatch struct {
	api client.Client

	mu sync.Mutex
	// deleted has a channel for each Node that is to be deleted, which is closed after that.
	deleted map[string]chan struct{}
}

func (d *deletesBeforePatch) expect(node string) (deleted <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deleted[node] = make(chan struct{})
	return d.deleted[node]
}

func (d *deletesBeforePatch) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if name, ok := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/"); ok && r.Method == http.MethodPatch {
			d.mu.Lock()
			deleted := d.deleted[name]
			delete(d.deleted, name)
			d.mu.Unlock()
			if deleted != nil {
				if err := d.api.Delete(r.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
					return nil, err
				}
				close(deleted)
			}
		}
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
