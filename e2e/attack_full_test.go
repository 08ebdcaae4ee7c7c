// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// A kubelet fills the annotations of its Node so that a record does not fit, and then a
// gate must close. The gate closes without the record, reports why the record is missing,
// and writes it when it fits.
func TestNodeWithoutRoomForARecord(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	level := newGate("level", keyB, byLabel("bad"))
	level.Spec.OpenWhen, level.Spec.CloseWhen = nil, level.Spec.OpenWhen
	e.declare(level)
	for name, test := range map[string]struct {
		fill func(k *kubelet) string
		says string
	}{
		"bytes": {
			(*kubelet).filling,
			"metadata.annotations: Too long",
		},
		"count": {
			func(k *kubelet) string { return numbered(1024 - len(k.node().Annotations)) },
			"the Node has 1025 annotations, and nodegate writes no Node with more than 1024",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := &env{T: t, cluster: e.cluster, admin: e.admin}
			k := e.kubelet("full-" + name)
			k.register()
			e.must(k.patchAsKubelet(`{"metadata":{"annotations":{`+test.fill(k)+`}}}`, false))
			k.label("bad")
			k.isTainted(keyB)
			k.eventually("the gate tells of the record", func() error {
				if says := e.message("level", v1alpha1.ConditionReady); !strings.Contains(says, k.name) || !strings.Contains(says, test.says) {
					return fmt.Errorf("it says %q", says)
				}
				return e.condition("level", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonWriteDenied)
			})
			e.must(k.patchAsKubelet(`{"metadata":{"annotations":null}}`, false))
			k.becomes("level", isClosed, keyB)
			k.patch(`{"metadata":{"labels":{"bad":null}}}`)
			k.becomes("level", "", keyB) // open, without a record
		})
	}
}

// The same before a reboot, whose record may be longer than the previous one.
func TestFullNodeReboots(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("agent")
	e.declare(newGate("agent", keyA, byDaemonSet("agent")))
	k := e.kubelet("full")
	k.register()
	pod := k.daemonPod(ds)
	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
	e.must(k.patchAsKubelet(`{"metadata":{"annotations":{`+k.filling()+`}}}`, false))
	k.reboot()
	k.isTainted(keyA)
	e.must(k.patchAsKubelet(`{"metadata":{"annotations":{"example.com/a0":null}}}`, false))
	k.becomes("agent", isClosed, keyA) // it names the pods that are ready by then, which only time would prove
	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
}

// filling returns an annotation that fills the Node's annotations.
func (k *kubelet) filling() string {
	room := 256<<10 - len("example.com/a0")
	for key, value := range k.node().Annotations {
		room -= len(key) + len(value)
	}
	return fmt.Sprintf(`"example.com/a0":%q`, strings.Repeat("x", room))
}

func (k *kubelet) isTainted(key string) {
	k.Helper()
	k.eventually(fmt.Sprintf("node %s has the taint %s", k.name, key), func() error {
		if !hasTaint(k.node(), key) {
			return errNotYet
		}
		return nil
	})
}

// A kubelet registers with so many taints that the policy does not add the gate's taint,
// because evaluating them costs the API server time. The gate reports it, and closes when
// the taints are removed.
func TestNodeWithTooManyTaints(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	e.declare(newGate("agent", keyA, byLabel("ready")))
	k := e.kubelet("too-many-taints")
	k.register(func(n *corev1.Node) {
		for i := range 1025 {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: fmt.Sprintf("foreign-%d", i), Effect: corev1.TaintEffectPreferNoSchedule})
		}
	})
	e.eventually("the gate tells of the taints", func() error {
		says := e.message("agent", v1alpha1.ConditionReady)
		if !strings.Contains(says, k.name+": ") || !strings.Contains(says, "taints, and nodegate writes no Node with more than 1024; remove what does not belong there") {
			return fmt.Errorf("it says %q", says)
		}
		return e.condition("agent", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonWriteDenied)
	})
	k.patch(`{"spec":{"taints":null}}`)
	k.becomes("agent", isClosed, keyA)
}
