// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/testcluster/await"
)

// A machine registers. Its Node is never visible without the taint, and no pod of the
// workload is bound to it before its daemon is ready.
func TestRegistration(t *testing.T) {
	h := newHost(t)
	must(t, h.PowerOn())
	h.await(t, true)
	h.awaitStart(t, "agent", time.Time{})
	h.awaitAgent(t, false)
	if pods := h.boundPods(t); len(pods) > 0 {
		t.Errorf("%d pods are bound to the closed node", len(pods))
	}
	ready := time.Now()
	h.setReady(t, true)
	h.await(t, false)
	h.awaitStart(t, "workload", ready)
	if all := h.starts(t); count(all, "workload", time.Time{}) != count(all, "workload", ready) {
		t.Errorf("containers of the workload started before the daemon was ready")
	}
	if first := h.history()[0]; !isClosed(first) {
		t.Errorf("the first state of the Node has the taints %v", first.Spec.Taints)
	}
}

// A kubelet that is killed and starts again changes nothing: the boot is the same. The next
// reboot, to which nodegate reacts, shows that it has had the opportunity.
func TestKubeletRestart(t *testing.T) {
	h := newHost(t)
	h.bootAndOpen(t)
	boot, open, began := h.BootID(), len(h.history()), h.kubeletStarts(t)
	heartbeat := heartbeatOf(h.last(t))
	must(t, h.KillKubelet())
	must(t, await.Until(t.Context(), "kubelet", func(context.Context) error {
		if n := h.kubeletStarts(t); n <= began {
			return fmt.Errorf("it has started %d times", n)
		}
		if at := heartbeatOf(h.newest()); !at.After(heartbeat) {
			return fmt.Errorf("its last heartbeat was at %s", at)
		}
		return nil
	}))
	h.rebootClosed(t)
	if reason := h.reason(t); reason != v1alpha1.ReasonRebooted {
		t.Errorf("after the reboot, the gate is closed with the reason %s", reason)
	}
	for _, state := range h.history()[open:] {
		if state.Status.NodeInfo.BootID == boot && isClosed(state) {
			t.Errorf("the gate closed in the boot in which the kubelet restarted: %v", state.Spec.Taints)
		}
	}
	h.setReady(t, true)
	h.await(t, false)
}

// heartbeatOf returns the time of the last heartbeat of the condition Ready.
func heartbeatOf(n *corev1.Node) time.Time {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.LastHeartbeatTime.Time
		}
	}
	return time.Time{}
}

// A machine loses power and boots again before its Node becomes NotReady. Its pods are still
// Ready in the API. The gate closes, and opens when the daemon is ready in the new boot.
func TestQuickReboot(t *testing.T) {
	h := newHost(t)
	h.bootAndOpen(t)
	var early, all int
	for range *reboots {
		off := h.rebootClosed(t)
		early += count(h.starts(t), "workload", off)
		all += len(h.boundPods(t))
		h.setReady(t, true)
		h.await(t, false)
	}
	t.Logf("%d reboots: of %d pods that were bound before, at least %d started before the gate opened", *reboots, all, early)
}

// bootAndOpen boots a new machine, and returns when its gate is open and the workload runs.
func (h *host) bootAndOpen(t *testing.T) {
	t.Helper()
	h.setReady(t, true)
	must(t, h.PowerOn())
	h.await(t, false)
	h.awaitStart(t, "workload", time.Time{})
}

// rebootClosed cuts the power, powers the machine on, and returns when its daemon runs and is
// not ready. The gate must have closed, and not opened, in the new boot. It returns a time at
// which the machine was off.
func (h *host) rebootClosed(t *testing.T) time.Time {
	t.Helper()
	return h.rebootClosedWith(t, func() {})
}

// rebootClosedWith is rebootClosed, and does something while the machine is off.
func (h *host) rebootClosedWith(t *testing.T, do func()) time.Time {
	t.Helper()
	h.setReady(t, false)
	must(t, h.PowerOff())
	off := time.Now()
	do()
	must(t, h.PowerOn())
	h.await(t, true)
	h.awaitStart(t, "agent", off)
	h.awaitAgent(t, false)
	if opened := h.openedIn(h.BootID()); len(opened) > 0 {
		t.Errorf("the gate opened before the daemon was ready in this boot")
	}
	return off
}

// kubeletStarts returns how often the kubelet has started.
func (h *host) kubeletStarts(t *testing.T) int {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(h.Logs(), "kubelet.log"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(log), "Started kubelet")
}
