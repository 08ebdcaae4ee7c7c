// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster/await"
	"github.com/nodegate/nodegate/testcluster/machine"
)

// announcingManifest is the manifest of an agent that announces shutdowns.
const announcingManifest = "../../deploy/agent/announces-shutdowns.yaml"

// A machine shuts down, and its kubelet does not delay that. The node agent does, until the gate
// is closed. If the shutdown is cancelled, the gate opens again. After the next boot, the
// announcement is gone, and the gate opens when the daemon is ready.
func TestAgentAnnouncesShutdown(t *testing.T) {
	skipUnlessLong(t)
	h := newMachine(t, machine.Options{Labels: map[string]string{holdLabel: "long"}, AbruptShutdown: true})
	h.applyAgent(t, announcingManifest)
	h.bootAndOpen(t)

	began := time.Now()
	must(t, h.PrepareShutdown())
	h.await(t, true)
	t.Logf("the gate closed %s after the announcement", time.Since(began).Round(time.Millisecond))
	if reason := h.reason(t); reason != v1alpha1.ReasonNodeShutdown {
		t.Errorf("the gate closed with the reason %s", reason)
	}
	must(t, h.CancelShutdown())
	h.await(t, false)
	h.awaitAnnouncement(t, false)

	h.setReady(t, false)
	must(t, h.PrepareShutdown())
	must(t, h.FinishShutdown(t.Context()))
	if node := h.last(t); !isClosed(node) {
		t.Errorf("the machine is off, and the gate is open: taints %v", node.Spec.Taints)
	}
	off := len(h.history())
	h.awaitAnnouncement(t, true)
	must(t, h.PowerOn())
	h.awaitAnnouncement(t, false)
	h.await(t, true)
	for _, state := range openings(h.history()[off-1:]) {
		t.Errorf("the gate opened in boot %s, before the daemon was ready", state.Status.NodeInfo.BootID)
	}
	h.setReady(t, true)
	h.await(t, false)
}

// awaitAnnouncement waits until the Node has, or does not have, the condition that announces its
// shutdown.
func (h *host) awaitAnnouncement(t *testing.T, announced bool) {
	t.Helper()
	must(t, await.Until(t.Context(), "announcement", func(context.Context) error {
		has := false
		for _, c := range h.last(t).Status.Conditions {
			has = has || c.Type == corev1.NodeGracefulNodeShutdownInProgress
		}
		if has != announced {
			return errors.New("the condition has not changed")
		}
		return nil
	}))
}
