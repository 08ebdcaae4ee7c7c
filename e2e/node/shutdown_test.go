// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// A machine shuts down, which the kubelet delays until it has ended the pods. The gate
// closes before the machine is off, and is closed when it boots again until the daemon is
// ready in the new boot.
func TestShutdown(t *testing.T) {
	h := newHost(t)
	h.bootAndOpen(t)
	boot := h.BootID()
	h.setReady(t, false)
	must(t, h.Shutdown())
	off := time.Now()
	if last := h.last(t); !isClosed(last) || last.Status.NodeInfo.BootID != boot {
		t.Errorf("the gate was open when the machine was off: taints %v", last.Spec.Taints)
	}
	must(t, h.PowerOn())
	h.await(t, true)
	h.awaitStart(t, "agent", off)
	h.awaitAgent(t, false)
	if opened := h.openedIn(h.BootID()); len(opened) > 0 {
		t.Errorf("the gate opened before the daemon was ready in this boot")
	}
	if early := count(h.starts(t), "workload", off); early > 0 {
		t.Errorf("%d containers of the workload started before the gate opened", early)
	}
	h.setReady(t, true)
	h.await(t, false)
}

// A shutdown is announced and cancelled. The gate closes and opens again in the same boot.
func TestCancelledShutdown(t *testing.T) {
	h := newHost(t)
	h.bootAndOpen(t)
	must(t, h.PrepareShutdown())
	h.await(t, true)
	if reason := h.reason(t); reason != v1alpha1.ReasonNodeShutdown {
		t.Errorf("the gate closed with the reason %s", reason)
	}
	must(t, h.CancelShutdown())
	h.await(t, false)
}

// last returns the newest state of the Node that the API server has.
func (h *host) last(t *testing.T) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	must(t, shared.client.Get(t.Context(), h.key(), node))
	return node
}

// reason returns the reason in the gate's record.
func (h *host) reason(t *testing.T) v1alpha1.Reason {
	t.Helper()
	record, err := gate.ParseRecord(h.last(t).Annotations[v1alpha1.RecordAnnotationPrefix+gateName])
	must(t, err)
	return record.Reason
}
