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
	e.declare(newClosingGate("level", keyB, byLabel("bad")))
	for name, test := range map[string]struct {
		fill func(k *kubelet) string
		want string
	}{
		"bytes": {
			(*kubelet).filling,
			"metadata.annotations: Too long",
		},
		"count": {
			func(k *kubelet) string { return numbered(1024 - len(k.node().Annotations)) },
			"the Node has 1025 annotations, and nodegate may not write a Node with more than 1024",
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := e.in(t)
			k := e.kubelet("full-" + name)
			k.register()
			e.must(k.patchAsKubelet(`{"metadata":{"annotations":{`+test.fill(k)+`}}}`, false))
			k.label("bad")
			k.isTainted(keyB)
			e.reportsDenial("level", k.name, test.want)
			e.must(k.patchAsKubelet(`{"metadata":{"annotations":null}}`, false))
			k.becomes("level", isClosed, keyB)
			k.unlabel("bad")
			k.becomes("level", isNone, keyB) // open, without a record
		})
	}
}

// The same happens before a reboot, whose record may be longer than the previous one.
func TestFullNodeReboots(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	k, pod := e.openNode("full", e.agent())
	e.must(k.patchAsKubelet(`{"metadata":{"annotations":{`+k.filling()+`}}}`, false))
	k.reboot()
	k.isTainted(keyA)
	e.reportsDenial("agent", "full", "metadata.annotations: Too long")
	e.tells(e.ask(e.cluster.Admin(), "why", "full"), 1, "held by 1 of 1 gates", "agent: closed, about to open", "Too long", "fix that cause")
	e.must(k.patchAsKubelet(`{"metadata":{"annotations":{"example.com/a0":null}}}`, false))
	k.becomes("agent", isClosed, keyA)
	k.recordsBoot("agent") // the pod is in the digest, because it was ready when the record was written
	k.run(pod, true)
	k.becomes("agent", isOpen, keyA)
}

// filling returns an annotation with which the Node's annotations have their maximum size.
func (k *kubelet) filling() string {
	free := 256<<10 - len("example.com/a0")
	for key, value := range k.node().Annotations {
		free -= len(key) + len(value)
	}
	return fmt.Sprintf(`"example.com/a0":%q`, strings.Repeat("x", free))
}

// reportsDenial waits until the gate's Ready condition reports WriteDenied with a message that
// contains all texts.
func (e *env) reportsDenial(name string, texts ...string) {
	e.Helper()
	e.eventually("gate "+name+" reports the denied write", func() error {
		for _, text := range texts {
			if err := e.messageContains(name, v1alpha1.ConditionReady, text); err != nil {
				return err
			}
		}
		return e.condition(name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonWriteDenied)
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
	k.register(func(n *corev1.Node) { n.Spec.Taints = foreignTaints(1025, corev1.TaintEffectPreferNoSchedule) })
	e.reportsDenial("agent", k.name+": ", "taints, and nodegate may not write a Node with more than 1024; remove those that are not needed")
	k.patch(`{"spec":{"taints":null}}`)
	k.becomes("agent", isClosed, keyA)
}
