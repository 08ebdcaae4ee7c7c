// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster/await"
)

func skipUnlessLong(t *testing.T) {
	t.Helper()
	if !*long {
		t.Skip("it waits for minutes: run with -long")
	}
}

// A machine is off for so long that its Node becomes unreachable. The gate closes then, and
// opens when the daemon is ready in the new boot.
func TestSlowReboot(t *testing.T) {
	skipUnlessLong(t)
	h := newHost(t)
	h.bootAndOpen(t)
	h.setReady(t, false)
	must(t, h.PowerOff())
	off := time.Now()
	h.awaitSilent(t)
	must(t, h.PowerOn())
	h.awaitBoot(t)
	h.awaitStart(t, "agent", off)
	h.awaitAgent(t, false)
	for _, state := range h.history() {
		if state.Status.NodeInfo.BootID == h.BootID() && !isClosed(state) {
			t.Errorf("the gate was open in the new boot, before the daemon was ready: %v", state.Spec.Taints)
		}
	}
	h.setReady(t, true)
	h.await(t, false)
}

// A machine is disconnected from the API server, and continues to run. The gate closes when
// the Node is unreachable, and opens when it returns: the boot is the same.
func TestDisconnected(t *testing.T) {
	skipUnlessLong(t)
	h := newHost(t)
	h.bootAndOpen(t)
	boot := h.BootID()
	h.Disconnect()
	h.awaitSilent(t)
	h.Connect()
	h.await(t, false)
	if h.BootID() != boot {
		t.Errorf("the machine has rebooted")
	}
}

// A machine loses power again while it boots, at different moments. The gate opens in none
// of these boots, and opens when the daemon is ready in the last one.
func TestRepeatedPowerCuts(t *testing.T) {
	skipUnlessLong(t)
	h := newHost(t)
	h.bootAndOpen(t)
	opened := len(h.history())
	h.setReady(t, false)
	for _, after := range []time.Duration{100 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second} {
		must(t, h.PowerOff())
		must(t, h.PowerOn())
		must(t, await.Pause(t.Context(), after))
	}
	h.rebootClosed(t)
	for _, state := range openings(h.history()[opened:]) {
		t.Errorf("the gate opened in boot %s, although the daemon was not ready in it", state.Status.NodeInfo.BootID)
	}
	h.setReady(t, true)
	h.await(t, false)
}

// Of two machines, one reboots. The gate of the other stays open.
func TestTwoMachines(t *testing.T) {
	skipUnlessLong(t)
	a, b := newHost(t), newHost(t)
	for _, h := range []*host{a, b} {
		h.setReady(t, true)
		must(t, h.PowerOn())
		h.await(t, false)
	}
	open := len(b.history())
	a.rebootClosed(t)
	a.setReady(t, true)
	a.await(t, false)
	for _, state := range b.history()[open:] {
		if isClosed(state) {
			t.Errorf("the gate of the machine that did not reboot closed: %v", state.Spec.Taints)
		}
	}
}

// A Node is deleted, and the kubelet registers it again in the same boot. What it reported
// before is evidence of another Node until it has been ready for a minute.
func TestDeletedNode(t *testing.T) {
	skipUnlessLong(t)
	h := newHost(t)
	h.bootAndOpen(t)
	before := h.last(t)
	must(t, shared.client.Delete(t.Context(), before))
	must(t, h.KillKubelet())
	must(t, await.Until(t.Context(), "another Node", func(context.Context) error {
		if now := h.newest(); now.UID == before.UID || now.Status.NodeInfo.BootID != h.BootID() {
			return fmt.Errorf("the Node's UID is %s", now.UID)
		}
		return nil
	}))
	registered := time.Now()
	h.await(t, true)
	h.await(t, false)
	t.Logf("the gate opened %s after the Node was created again", time.Since(registered).Round(time.Second))
}

// awaitSilent waits until the Node is unreachable and the gate has closed for that reason.
func (h *host) awaitSilent(t *testing.T) {
	t.Helper()
	must(t, await.Until(t.Context(), "unreachable Node", func(context.Context) error {
		for _, c := range h.newest().Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown && isClosed(h.newest()) {
				return nil
			}
		}
		return fmt.Errorf("its conditions are %v", h.newest().Status.Conditions)
	}))
	if reason := h.reason(t); reason != v1alpha1.ReasonNodeSilent {
		t.Errorf("the gate closed with the reason %s", reason)
	}
}

// awaitBoot waits until the Node reports the current boot.
func (h *host) awaitBoot(t *testing.T) {
	t.Helper()
	must(t, await.Until(t.Context(), "boot", func(context.Context) error {
		if boot := h.newest().Status.NodeInfo.BootID; boot != h.BootID() {
			return fmt.Errorf("the Node reports boot %s", boot)
		}
		return nil
	}))
}
