// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Presets whose key has another writer, with a stand-in of that writer. It does
// what the real one does by its source, on nodes as they are born, and on stale
// evidence after a reboot.

func ciliumOperator() *writer {
	return &writer{name: "cilium-operator", key: "node.cilium.io/agent-not-ready", decide: func(s *nodeView) taintAction {
		switch agent := s.pod("cilium"); {
		case isReady(agent): // terminating or not
			return removeTaint
		case agent != nil: // scheduled and not running
			return addTaint
		}
		return leaveTaint
	}}
}

// removesWhen is a writer that only removes.
func removesWhen(name, key string, fit func(*nodeView) bool) *writer {
	return &writer{name: name, key: key, decide: func(s *nodeView) taintAction {
		if fit(s) {
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

// awsDriver is a driver that removes the key from its own node, once for each
// start of its container, when it thinks that it may.
func awsDriver(name, key, app string, may func(*nodeView) bool) *writer {
	done := make(map[string]bool)
	return removesWhen(name, key, func(s *nodeView) bool {
		id := container(s.pod(app))
		if id == "" || done[id] || !may(s) {
			return false
		}
		done[id] = hasTaint(&s.node, key)
		return true
	})
}

func ebsDriver() *writer {
	return awsDriver("ebs-csi-node", "ebs.csi.aws.com/agent-not-ready", "ebs-csi-node", func(s *nodeView) bool {
		d := s.driver("ebs.csi.aws.com")
		return d != nil && d.Allocatable != nil && d.Allocatable.Count != nil
	})
}

func efsDriver() *writer {
	return awsDriver("efs-csi-node", "efs.csi.aws.com/agent-not-ready", "efs-csi-node", func(*nodeView) bool { return true })
}

// A rivalry is a preset and the other writer of its key.
type rivalry struct {
	preset, namespace, daemon, driver string
	writer                            func() *writer
	// early writers remove the key before the gate's signals hold.
	early bool
	// insists tells whether the writer removes the key again when it is put back.
	insists bool
}

var rivalries = map[string]rivalry{
	"istio-cni":  {preset: "istio-cni", namespace: "istio-system", daemon: "istio-cni-node", writer: istiod, insists: true},
	"gcp-pd-csi": {preset: "gcp-pd-csi", namespace: "kube-system", daemon: "pdcsi-node", driver: "pd.csi.storage.gke.io", writer: pdController, early: true, insists: true},
	"ebs-csi":    {preset: "ebs-csi", namespace: "kube-system", daemon: "ebs-csi-node", driver: "ebs.csi.aws.com", writer: ebsDriver, early: true},
	"efs-csi":    {preset: "efs-csi", namespace: "kube-system", daemon: "efs-csi-node", driver: "efs.csi.aws.com", writer: efsDriver, early: true},
}

var cilium = rivalry{preset: "cilium", namespace: "kube-system", daemon: "cilium", writer: ciliumOperator, insists: true}

func TestPresetWriters(t *testing.T) {
	for name, r := range rivalries {
		t.Run(name+"/silenced", func(t *testing.T) { r.silenced(t) })
		t.Run(name+"/not silenced", func(t *testing.T) { r.notSilenced(t) })
	}
}

// begin returns a node that was born into the preset's gate, beside the writer.
func (r rivalry) begin(t *testing.T, silenced bool) (*kubelet, *writer, *appsv1.DaemonSet) {
	t.Helper()
	e := newEnv(t)
	e.prepareSystemNamespaces()
	e.startController(0)
	ds := e.daemonIn(r.namespace, r.daemon, nil)
	ng := e.applyPreset(r.preset)
	e.inForce(r.preset)
	w := r.writer()
	w.silenced = silenced
	if w.key != ng.Spec.Taint.Key {
		t.Fatalf("the writer's key is %s, the preset's %s", w.key, ng.Spec.Taint.Key)
	}
	e.start(w)
	k := e.kubelet("n1")
	if born := k.register(); !carries(born, ng.Spec.Taint) {
		t.Fatalf("the node was born with %s", keys(born))
	}
	return k, w, ds
}

// registers has the driver register, if the preset has one.
func (r rivalry) registers(k *kubelet) {
	k.Helper()
	if r.driver != "" {
		k.registersDrivers(csiDriver(r.driver, 24))
	}
}

// bare counts the states in which the node is seen without the taint.
func (k *kubelet) bare(key string) (stop func() int) {
	return k.watchFor(func(n *corev1.Node) bool { return n.Name == k.name && !hasTaint(n, key) })
}

// With the other writer disabled, the node has its taint for as long as required: after its
// creation, and after a reboot with outdated Ready statuses.
func (r rivalry) silenced(t *testing.T) {
	k, w, ds := r.begin(t, true)
	bare := k.bare(w.key)
	pod := k.daemonPod(ds)
	k.run(pod, false)
	r.registers(k)
	k.waitsFor(r.preset, k.name, v1alpha1.ReadingPodNotReady)
	if n := bare(); n > 0 {
		t.Errorf("before it was fit, the node was seen without its taint %d times", n)
	}
	k.run(pod, true)
	k.becomes(r.preset, isOpen, w.key)
	k.wrote(1)

	k.reboot()
	k.becomes(r.preset, isClosed, w.key)
	bare = k.bare(w.key)
	k.waitsFor(r.preset, k.name, v1alpha1.ReadingStaleEvidence)
	if n := bare(); n > 0 {
		t.Errorf("on the word of the former boot, the node was seen without its taint %d times", n)
	}
	k.run(pod, true)
	k.becomes(r.preset, isOpen, w.key)
	k.wrote(3)
	if n := w.writes.Load(); n > 0 {
		t.Errorf("the silenced writer wrote %d times", n)
	}
	if k.contendedWith(r.preset, "") == nil {
		t.Error("the gate says that it fights with another writer")
	}
}

// With the other writer enabled, it removes the key at any time. nodegate then restores the
// taint once, backs off, reports the other writer, and opens the gate when the signals hold.
// It does not guarantee that no pod is scheduled before.
func (r rivalry) notSilenced(t *testing.T) {
	began := time.Now()
	k, w, ds := r.begin(t, false)
	pod := k.daemonPod(ds)
	k.run(pod, false)
	r.registers(k)
	if r.early {
		k.afterRemoval(r, w)
	}
	k.run(pod, true)
	k.becomes(r.preset, isOpen, w.key)
	born := len(k.nodeWrites(k.name))
	if most := 3 + attempts(began); born > most {
		t.Errorf("nodegate wrote the node %d times while it came up, want %d at most", born, most)
	}

	removed := w.writes.Load()
	k.reboot()
	k.eventually("the gate closes for the reboot", func() error { return k.recorded(r.preset, isClosed) })
	if r.insists {
		k.eventually("the writer removes the key on stale evidence", func() error {
			if w.writes.Load() == removed {
				return errNotYet
			}
			return nil
		})
		k.eventually("the fight is told, and the writer named", func() error { return k.contendedWith(r.preset, w.name) })
	} else {
		k.becomes(r.preset, isClosed, w.key) // the driver has not started yet
	}
	k.run(pod, true)
	k.becomes(r.preset, isOpen, w.key)
	if writes, most := k.nodeWrites(k.name), born+4+attempts(began); len(writes) > most {
		t.Errorf("nodegate wrote the node %d times, want %d at most:\n%s", len(writes), most, strings.Join(writes, "\n"))
	}
	t.Logf("nodegate wrote the node %d times, %s %d times", len(k.nodeWrites(k.name)), w.name, w.writes.Load())
	if n := int(w.writes.Load()); n == 0 || n > 6+attempts(began) {
		t.Errorf("the writer wrote %d times", n)
	}
}

// attempts is how often nodegate may have tried again to put its taint back since
// then: ten seconds after the first time, and ever more rarely.
func attempts(began time.Time) int { return int(time.Since(began) / (10 * time.Second)) }

// afterRemoval waits until the writer has removed the key of a node that is not
// fit, and nodegate has answered.
func (k *kubelet) afterRemoval(r rivalry, w *writer) {
	k.Helper()
	k.eventually("the writer removes the key", func() error {
		if w.writes.Load() == 0 {
			return errNotYet
		}
		return nil
	})
	if r.insists {
		k.eventually("the fight is told, and the writer named", func() error { return k.contendedWith(r.preset, w.name) })
		k.must(k.recorded(r.preset, isClosed))
		return
	}
	k.becomes(r.preset, isClosed, w.key) // put back, and left
	k.waitsFor(r.preset, k.name, v1alpha1.ReadingPodNotReady)
	k.must(k.is(r.preset, isClosed, w.key))
}

// recorded verifies the state of the gate's record, regardless of taints.
func (k *kubelet) recorded(gateName, state string) error {
	if r := k.record(gateName); r.State != state {
		return fmt.Errorf("the record of gate %s on node %s says %s, want %s", gateName, k.name, r.State, state)
	}
	return nil
}

func namesWriter(c *metav1.Condition, name string) error {
	switch {
	case c == nil || c.Status != metav1.ConditionTrue:
		return fmt.Errorf("condition: %s", conditionText(c))
	case !strings.Contains(c.Message, name):
		return errors.New("the message does not name " + name + ": " + c.Message)
	}
	return nil
}

// Cilium #16602: the agent goes, the node is closed; it comes back, the node is
// open. cilium-operator does the same, and it also believes the pod status of
// before a reboot.
func TestSeedCiliumPresetSilenced(t *testing.T) { cilium.silenced(t) }

func TestSeedCiliumPresetNotSilenced(t *testing.T) { cilium.notSilenced(t) }

// An agent that crashes again and again: the two writers agree on every edge or,
// where one is ahead of the other, nodegate steps back. The taint is there while
// the agent is away, and the writes are bounded.
func TestSeedCiliumPresetCrashingAgent(t *testing.T) {
	for name, silenced := range map[string]bool{"silenced": true, "not silenced": false} {
		t.Run(name, func(t *testing.T) {
			const crashes = 5
			began := time.Now()
			k, w, ds := cilium.begin(t, silenced)
			pod := k.daemonPod(ds)
			k.run(pod, true)
			k.becomes("cilium", isOpen, w.key)
			for range crashes {
				k.run(pod, false)
				k.becomes("cilium", isClosed, w.key)
				k.run(pod, true)
				k.becomes("cilium", isOpen, w.key)
			}
			writes := len(k.nodeWrites(k.name))
			t.Logf("nodegate wrote the node %d times, %s %d times", writes, w.name, w.writes.Load())
			if most := 1 + 4*crashes + attempts(began); writes > most {
				t.Errorf("nodegate wrote the node %d times for %d crashes, want %d at most", writes, crashes, most)
			}
			if theirs := int(w.writes.Load()); silenced && writes != 1+2*crashes || theirs > 4*crashes+1+attempts(began) || silenced && theirs > 0 {
				t.Errorf("nodegate wrote %d times and the operator %d times", writes, theirs)
			}
		})
	}
}
