// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller"
)

// What Cilium's users suffered from; docs/from-cilium.md names the tests of what
// is not here.

// Cilium's operator hears of no pod's deletion, and does nothing where there is
// no agent: a node whose agent was deleted and not replaced stays open.
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

// A terminating agent still says that it is ready. On Cilium's operator, which
// drops the deletion timestamp while it caches pods, it counts as running.
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

// Nodes on which no agent ever came stayed tainted for weeks, and nothing said
// so: METR/hawk#1335.
func TestSeedCiliumNodeWithoutAgentIsTold(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.agent()
	e.kubelet("n1").register()
	e.eventually("the status names the node, and what it waits for", func() error {
		var ng v1alpha1.NodeGate
		if err := e.admin.Get(t.Context(), client.ObjectKey{Name: "agent"}, &ng); err != nil {
			return err
		}
		if w := ng.Status.Waiting; len(w) != 1 || w[0].Node != "n1" || w[0].Reason != string(v1alpha1.ReadingPodMissing) {
			return fmt.Errorf("waiting: %+v", w)
		}
		return nil
	})
}

// While Cilium's operator still runs with its defaults, it removes the key when
// the agent is ready, just as nodegate does; and it sets it again when an agent
// is not: the gate's key is the gate's, and it is told who the other is.
func TestSeedCiliumOperatorStillRunning(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.agent()
	k, pod := e.openNode("n1", ds)
	k.run(pod, false) // OnReboot: which does not close the gate
	set := func() {
		k.must(k.editTaints(t.Context(), "n1", "cilium-operator-generic", func(taints []corev1.Taint) []corev1.Taint {
			return append(without(taints, keyA), corev1.Taint{Key: keyA, Effect: corev1.TaintEffectNoSchedule})
		}))
	}
	set()
	k.becomes("agent", isOpen, keyA)
	set()
	e.eventually("the fight is told", func() error {
		return e.condition("agent", v1alpha1.ConditionContended, "True", "")
	})
}

// Cilium's operator filled its log with nodes that were long gone. A node that is
// deleted while its gate is about to open is forgotten without a word.
func TestSeedCiliumDeletedNodesAreForgotten(t *testing.T) {
	e := newEnv(t)
	var mu sync.Mutex
	var lines []string
	e.runController(func(p *controller.Process) {
		p.Options.Log = funcr.New(func(_, line string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, line)
		}, funcr.Options{})
	})
	ds := e.agent()
	const n = 20
	for i := range n {
		k := e.kubelet(fmt.Sprintf("gone-%d", i))
		k.register()
		pod := k.daemonPod(ds)
		k.run(pod, true)
		e.must(e.admin.Delete(t.Context(), k.node()))
		e.must(e.admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
	}
	e.settled()
	mu.Lock()
	defer mu.Unlock()
	told := 0
	for _, line := range lines {
		if strings.Contains(line, `"gone-`) && !strings.Contains(line, `"gate opened"`) {
			t.Log(line)
			told++
		}
	}
	if told > 0 {
		t.Errorf("%d lines are about %d nodes that are gone", told, n)
	}
}
