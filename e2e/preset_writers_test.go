// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Presets whose key has another writer, with a simulation of that writer that is based on its
// source code: on new nodes, and with stale evidence after a reboot.

// ciliumOperator simulates cilium-operator.
func ciliumOperator() *writer {
	return &writer{name: "cilium-operator", key: "node.cilium.io/agent-not-ready", decide: func(s *nodeView) taintAction {
		switch agent := s.pod("cilium"); {
		case isReady(agent): // terminating or not
			return removeTaint
		case agent != nil: // scheduled, and not ready
			return addTaint
		}
		return leaveTaint
	}}
}

// kumaControlPlane simulates the taint controller of Kuma's control plane, which also adds the
// taint when the agent's pod is missing.
func kumaControlPlane() *writer {
	return &writer{name: "kuma-control-plane", key: "NodeReadiness", decide: func(s *nodeView) taintAction {
		if isReady(s.pod("kuma-cni-node")) {
			return removeTaint
		}
		return addTaint
	}}
}

// removesWhen returns a writer that only removes the key, while the condition holds.
func removesWhen(name, key string, condition func(*nodeView) bool) *writer {
	return &writer{name: name, key: key, decide: func(s *nodeView) taintAction {
		if condition(s) {
			return removeTaint
		}
		return leaveTaint
	}}
}

func istiod() *writer {
	return removesWhen("istiod", "cni.istio.io/not-ready", func(s *nodeView) bool { return isReady(s.pod("istio-cni-node")) })
}

func pdController() *writer {
	return removesWhen("csi-gce-pd-controller", "pd.csi.storage.gke.io/not-ready", func(s *nodeView) bool {
		return s.driver("pd.csi.storage.gke.io") != nil
	})
}

// ebsDriver simulates the EBS driver from 1.47 on: for ten minutes after its container has
// started, it removes the key from its own node whenever it sees it, if the limit is set.
func ebsDriver() *writer {
	const name, key = "ebs-csi-node", "ebs.csi.aws.com/agent-not-ready"
	return removesWhen(name, key, func(s *nodeView) bool {
		d := s.driver("ebs.csi.aws.com")
		return s.running(name) != "" && d != nil && d.Allocatable != nil && d.Allocatable.Count != nil
	})
}

// efsDriver simulates the EFS driver, which removes the key from its own node once for each
// start of its container.
func efsDriver() *writer {
	const name, key = "efs-csi-node", "efs.csi.aws.com/agent-not-ready"
	done := make(map[string]bool)
	return removesWhen(name, key, func(s *nodeView) bool {
		id := s.running(name)
		if id == "" || done[id] {
			return false
		}
		done[id] = hasTaint(&s.node, key)
		return true
	})
}

// contendedPreset is a preset and the other writer of its key.
type contendedPreset struct {
	preset, namespace, daemon, driver string
	writer                            func() *writer
	// early reports whether the writer removes the key before the gate's signals hold.
	early bool
	// repeats reports whether the writer removes the key again after it was restored.
	repeats bool
	// onNode reports whether the writer runs on the node, so that a reboot stops it.
	onNode bool
}

var contendedPresets = map[string]contendedPreset{
	"istio-cni":  {preset: "istio-cni", namespace: "istio-system", daemon: "istio-cni-node", writer: istiod, repeats: true},
	"kuma":       {preset: "kuma", namespace: "kube-system", daemon: "kuma-cni-node", writer: kumaControlPlane, repeats: true},
	"gcp-pd-csi": {preset: "gcp-pd-csi", namespace: "kube-system", daemon: "pdcsi-node", driver: "pd.csi.storage.gke.io", writer: pdController, early: true, repeats: true},
	"ebs-csi":    {preset: "ebs-csi", namespace: "kube-system", daemon: "ebs-csi-node", driver: "ebs.csi.aws.com", writer: ebsDriver, early: true, repeats: true, onNode: true},
	"efs-csi":    {preset: "efs-csi", namespace: "kube-system", daemon: "efs-csi-node", driver: "efs.csi.aws.com", writer: efsDriver, early: true, onNode: true},
}

var cilium = contendedPreset{preset: "cilium", namespace: "kube-system", daemon: "cilium", writer: ciliumOperator, repeats: true}

func TestPresetWriters(t *testing.T) {
	for name, c := range contendedPresets {
		t.Run(name+"/writer disabled", func(t *testing.T) { c.disabled(t) })
		t.Run(name+"/writer enabled", func(t *testing.T) { c.enabled(t) })
	}
}

// setUp starts a controller and the other writer, and returns a node on which the preset's
// gate is closed.
func (c contendedPreset) setUp(t *testing.T, disabled bool) (*kubelet, *writer, *appsv1.DaemonSet) {
	t.Helper()
	e := newEnv(t)
	e.prepareSystemNamespaces()
	e.startController(0)
	ds := e.daemonIn(c.namespace, c.daemon, nil)
	ng := e.applyPreset(c.preset)
	e.inForce(c.preset)
	w := c.writer()
	w.silenced = disabled
	if w.key != ng.Spec.Taint.Key {
		t.Fatalf("the writer's key is %s, the preset's %s", w.key, ng.Spec.Taint.Key)
	}
	e.start(w)
	k := e.kubelet("n1")
	if born := k.register(); !carries(born, ng.Spec.Taint) {
		t.Fatalf("the node was created with taints %s", keys(born))
	}
	return k, w, ds
}

// registerDriver registers the preset's CSI driver, if it has one.
func (c contendedPreset) registerDriver(k *kubelet) {
	k.Helper()
	if c.driver != "" {
		k.registersDrivers(csiDriver(c.driver, 24))
	}
}

// countUntainted counts the states in which the node does not have the taint.
func (k *kubelet) countUntainted(key string) (stop func() int) {
	return k.watchFor(func(n *corev1.Node) bool { return n.Name == k.name && !hasTaint(n, key) })
}

// With the other writer disabled, the node has its taint for as long as required: after its
// creation, and after a reboot with outdated Ready statuses.
func (c contendedPreset) disabled(t *testing.T) {
	k, w, ds := c.setUp(t, true)
	untainted := k.countUntainted(w.key)
	pod := k.daemonPod(ds)
	k.run(pod, false)
	c.registerDriver(k)
	k.waitsFor(c.preset, k.name, v1alpha1.ReadingPodNotReady)
	if n := untainted(); n > 0 {
		t.Errorf("before the signals held, the node was without its taint in %d states", n)
	}
	k.run(pod, true)
	k.becomes(c.preset, isOpen, w.key)
	k.wrote(1)

	k.reboot()
	k.becomes(c.preset, isClosed, w.key)
	untainted = k.countUntainted(w.key)
	k.waitsFor(c.preset, k.name, v1alpha1.ReadingStaleEvidence)
	if n := untainted(); n > 0 {
		t.Errorf("with evidence of the previous boot, the node was without its taint in %d states", n)
	}
	k.run(pod, true)
	k.becomes(c.preset, isOpen, w.key)
	k.wrote(3)
	if n := w.writes.Load(); n > 0 {
		t.Errorf("the disabled writer wrote %d times", n)
	}
	if k.contendedWith(c.preset, "") == nil {
		t.Error("the gate reports that its taint is contended")
	}
}

// With the other writer enabled, it removes the key at any time. nodegate then restores the
// taint once, backs off, reports the other writer, and opens the gate when the signals hold.
// It does not guarantee that no pod is scheduled before.
func (c contendedPreset) enabled(t *testing.T) {
	began := time.Now()
	k, w, ds := c.setUp(t, false)
	pod := k.daemonPod(ds)
	k.run(pod, false)
	c.registerDriver(k)
	if c.early {
		c.earlyRemoval(k, w)
	}
	k.run(pod, true)
	k.becomes(c.preset, isOpen, w.key)
	atFirst := len(k.nodeWrites())
	if most := 3 + attempts(began); atFirst > most {
		t.Errorf("nodegate wrote the new node %d times, want %d at most", atFirst, most)
	}

	removed := w.writes.Load()
	k.reboot()
	k.eventually("the gate closes because of the reboot", func() error { return k.recorded(c.preset, isClosed) })
	if c.onNode {
		k.becomes(c.preset, isClosed, w.key) // the driver has not started yet
		k.run(pod, false)
	}
	if c.repeats {
		k.eventually("the writer removes the key on stale evidence", func() error { return unless(w.writes.Load() > removed) })
		k.contendedBy(c.preset, w.name)
	}
	k.run(pod, true)
	k.becomes(c.preset, isOpen, w.key)
	writes := k.nodeWrites()
	if most := atFirst + 4 + attempts(began); len(writes) > most {
		t.Errorf("nodegate wrote the node %d times, want %d at most:\n%s", len(writes), most, strings.Join(writes, "\n"))
	}
	t.Logf("nodegate wrote the node %d times, %s %d times", len(writes), w.name, w.writes.Load())
	if n, most := int(w.writes.Load()), 6+attempts(began); n == 0 || n > most {
		t.Errorf("%s wrote the node %d times, want between 1 and %d", w.name, n, most)
	}
}

// attempts returns how often nodegate may have tried to restore its taint since a time: again
// ten seconds after the first attempt, and then at growing intervals.
func attempts(since time.Time) int { return int(time.Since(since) / (10 * time.Second)) }

// earlyRemoval waits until the writer has removed the key while the signals do not hold, and
// nodegate has reacted.
func (c contendedPreset) earlyRemoval(k *kubelet, w *writer) {
	k.Helper()
	k.eventually("the writer removes the key", func() error { return unless(w.writes.Load() > 0) })
	if c.repeats {
		k.contendedBy(c.preset, w.name)
		k.must(k.recorded(c.preset, isClosed))
		return
	}
	k.becomes(c.preset, isClosed, w.key) // restored, and not removed again
	k.waitsFor(c.preset, k.name, v1alpha1.ReadingPodNotReady)
	k.must(k.is(c.preset, isClosed, w.key))
}

// recorded verifies the state of the gate's record, regardless of taints.
func (k *kubelet) recorded(gateName, state string) error {
	if r := k.record(gateName); r.State != state {
		return fmt.Errorf("the record of gate %s on node %s has state %s, want %s", gateName, k.name, r.State, state)
	}
	return nil
}

// namesWriter verifies that condition Contended is True, and that its message has this name.
func namesWriter(c *metav1.Condition, name string) error {
	switch {
	case c == nil || c.Status != metav1.ConditionTrue:
		return fmt.Errorf("condition: %s", conditionText(c))
	case !strings.Contains(c.Message, name):
		return fmt.Errorf("condition Contended does not name %s: %s", name, c.Message)
	}
	return nil
}

// Cilium #16602: the node is closed when the agent disappears, and open when it is ready
// again. cilium-operator does the same, but also accepts the pod status from before a reboot.
func TestSeedCiliumPresetSilenced(t *testing.T) { cilium.disabled(t) }

func TestSeedCiliumPresetNotSilenced(t *testing.T) { cilium.enabled(t) }

// The agent crashes repeatedly. The two writers agree on every transition, or nodegate backs
// off if one writes before the other. The node has the taint while the agent is not ready,
// and the number of writes is bounded.
func TestSeedCiliumPresetCrashingAgent(t *testing.T) {
	for name, disabled := range map[string]bool{"writer disabled": true, "writer enabled": false} {
		t.Run(name, func(t *testing.T) {
			const crashes = 5
			began := time.Now()
			k, w, ds := cilium.setUp(t, disabled)
			pod := k.daemonPod(ds)
			k.run(pod, true)
			k.becomes("cilium", isOpen, w.key)
			for range crashes {
				k.run(pod, false)
				k.becomes("cilium", isClosed, w.key)
				k.run(pod, true)
				k.becomes("cilium", isOpen, w.key)
			}
			ours, theirs := len(k.nodeWrites()), int(w.writes.Load())
			t.Logf("nodegate wrote the node %d times, %s %d times", ours, w.name, theirs)
			most := 1 + 4*crashes + attempts(began)
			if ours > most || theirs > most {
				t.Errorf("for %d crashes, nodegate wrote the node %d times and %s %d times, want %d at most", crashes, ours, w.name, theirs, most)
			}
			if want := 1 + 2*crashes; disabled && (ours != want || theirs > 0) {
				t.Errorf("for %d crashes, nodegate wrote the node %d times, want %d; the disabled writer wrote %d times", crashes, ours, want, theirs)
			}
		})
	}
}
