// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/machine"
)

// A kubelet registers its Node with the gate's taint, which the API server also adds. The Node
// has it once, and opens. After a reboot, nodegate closes the gate: the kubelet does not change
// the taints of an existing Node.
func TestRegisterWithTaints(t *testing.T) {
	h := newMachine(t, machine.Options{Taints: []corev1.Taint{taint}})
	must(t, h.PowerOn())
	h.await(t, true)
	h.awaitAgent(t, false)
	h.assertOneTaint(t, h.history()[0])
	h.setReady(t, true)
	h.await(t, false)
	h.rebootClosed(t)
	node := h.last(t)
	h.assertOneTaint(t, node)
	if reason := h.reason(t); reason != v1alpha1.ReasonRebooted {
		t.Errorf("after the reboot, the gate is closed with the reason %s", reason)
	}
	h.setReady(t, true)
	h.await(t, false)
}

// A Node is deleted, and its kubelet registers it again in the same boot, with the gate's taint.
// The daemon was ready when the Node was deleted, and is not ready any longer. The gate opens
// when the daemon is ready on the new Node.
func TestRegisterAgain(t *testing.T) {
	skipUnlessLong(t)
	h := newMachine(t, machine.Options{Taints: []corev1.Taint{taint}})
	h.bootAndOpen(t)
	before := h.last(t)
	h.setReady(t, false)
	must(t, h.client.Delete(t.Context(), before))
	must(t, h.KillKubelet())
	must(t, await.Until(t.Context(), "another Node", func(context.Context) error {
		if now := h.newest(); now.UID == before.UID || now.Status.NodeInfo.BootID != h.BootID() {
			return fmt.Errorf("the Node's UID is %s", now.UID)
		}
		return nil
	}))
	// A kubelet whose Node did not exist when it started may try again only after two minutes to
	// create its CSINode, without which it is not Ready.
	must(t, h.KillKubelet())
	h.awaitAgent(t, false)
	for _, state := range h.history() {
		if state.UID != before.UID && !isClosed(state) {
			t.Errorf("the gate of the new Node was open before the daemon was ready: %v", state.Spec.Taints)
		}
	}
	h.assertOneTaint(t, h.last(t))
	h.setReady(t, true)
	h.await(t, false)
}

// assertOneTaint checks that a Node has the taint of the gates once.
func (h *host) assertOneTaint(t *testing.T, node *corev1.Node) {
	t.Helper()
	n := 0
	for _, have := range node.Spec.Taints {
		if have.Key == taint.Key {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%s has the taints %v", h.name, node.Spec.Taints)
	}
}
