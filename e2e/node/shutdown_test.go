// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/testcluster/await"
)

// A machine shuts down, which the kubelet delays until it has ended the pods. The gate closes
// while it still runs, and is closed when it boots again until the daemon is ready in the new
// boot. The pods have ended, so they do not start with it.
func TestShutdown(t *testing.T) {
	h := newHost(t)
	h.bootAndOpen(t)
	must(t, h.PrepareShutdown())
	h.await(t, true)
	if reason := h.reason(t); reason != v1alpha1.ReasonNodeShutdown {
		t.Errorf("the gate closed with the reason %s", reason)
	}
	must(t, await.Until(t.Context(), "end of the pods", func(context.Context) error {
		for _, p := range h.boundPods(t) {
			if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				return fmt.Errorf("pod %s is %s", p.Name, p.Status.Phase)
			}
		}
		return nil
	}))
	must(t, h.FinishShutdown(t.Context()))
	off := h.rebootClosed(t)
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
	must(t, h.client.Get(t.Context(), h.key(), node))
	return node
}

// reason returns the reason in the gate's record.
func (h *host) reason(t *testing.T) v1alpha1.Reason {
	t.Helper()
	record, err := gate.ParseRecord(h.last(t).Annotations[v1alpha1.RecordAnnotationPrefix+gateName])
	must(t, err)
	return record.Reason
}
