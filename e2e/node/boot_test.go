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
	if n := count(h.starts(t), "workload", time.Time{}); n != count(h.starts(t), "workload", ready) {
		t.Errorf("containers of the workload started before the daemon was ready")
	}
	if first := h.history()[0]; !isClosed(first) {
		t.Errorf("the first state of the Node has the taints %v", first.Spec.Taints)
	}
}

// A kubelet that is killed and starts again changes nothing: the boot is the same.
func TestKubeletRestart(t *testing.T) {
	h := newHost(t)
	h.bootAndOpen(t)
	open := len(h.history())
	began := h.kubeletStarts(t)
	must(t, h.KillKubelet())
	must(t, await.Until(t.Context(), "kubelet", func(context.Context) error {
		if n := h.kubeletStarts(t); n <= began {
			return fmt.Errorf("it has started %d times", n)
		}
		if n := len(h.history()); n == open {
			return fmt.Errorf("it has not written its Node since")
		}
		return nil
	}))
	for _, state := range h.history()[open:] {
		if isClosed(state) {
			t.Errorf("the gate closed: %v", state.Spec.Taints)
		}
	}
}

// A machine loses power and is back within seconds, before anybody notices. Its pods are
// still Ready in the API. The gate closes, and opens when the daemon is ready in the new
// boot.
func TestQuickReboot(t *testing.T) {
	h := newHost(t)
	h.bootAndOpen(t)
	for range 3 {
		h.setReady(t, false)
		must(t, h.PowerOff())
		off := time.Now()
		must(t, h.PowerOn())
		h.await(t, true)
		h.awaitStart(t, "agent", off)
		h.awaitAgent(t, false)
		if opened := h.openedIn(h.BootID()); len(opened) > 0 {
			t.Errorf("the gate opened before the daemon was ready in this boot")
		}
		early := count(h.starts(t), "workload", off)
		h.setReady(t, true)
		h.await(t, false)
		t.Logf("%d containers of the workload, which was bound before, started before the gate opened", early)
	}
}

// bootAndOpen boots a new machine, and returns when its gate is open and the workload runs.
func (h *host) bootAndOpen(t *testing.T) {
	t.Helper()
	h.setReady(t, true)
	must(t, h.PowerOn())
	h.await(t, false)
	h.awaitStart(t, "workload", time.Time{})
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
