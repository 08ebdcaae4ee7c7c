// SPDX-License-Identifier: Apache-2.0

//go:build linux

package node

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/testbed"
	"github.com/nodegate/nodegate/testcluster/machine"
)

// The chart is installed with Helm before the cluster has a node, with the image that users
// build, in a namespace that enforces the restricted Pod Security Standard. Two replicas start on
// the first node, whose kubelet has registered it closed, and open it when its daemon is ready.
// They restart with other arguments while a second node is closed, and start on that node when
// the first one is lost. After the chart has been uninstalled as documented, nothing is left on
// the nodes.
func TestChart(t *testing.T) {
	skipUnlessLong(t)
	r := newRelease(t)
	r.helm(t, "install", "--values="+r.values)
	first := r.newHost(t, machine.Options{Taints: []corev1.Taint{taint}})
	must(t, first.PowerOn())
	r.awaitReplicas(t, "", first)
	created := first.history()[0]
	if record := created.Annotations[v1alpha1.RecordAnnotationPrefix+gateName]; !isClosed(created) || record != "" {
		t.Errorf("the first node was created with the taints %v and the record %q, which no nodegate can have prepared", created.Spec.Taints, record)
	}
	must(t, testbed.AwaitGate(t.Context(), r.applier, gateName))
	must(t, testbed.AwaitBirthClosed(t.Context(), r.cluster, taint))
	if opened := first.openedIn(first.BootID()); len(opened) > 0 || !isClosed(first.last(t)) {
		t.Error("the first node opened before its daemon was ready")
	}
	first.setReady(t, true)
	first.await(t, false)

	second := r.newHost(t, machine.Options{})
	must(t, second.PowerOn())
	second.await(t, true)
	second.awaitAgent(t, false)
	if taints := second.history()[0].Spec.Taints; !isClosed(second.history()[0]) {
		t.Errorf("the second node was created with the taints %v", taints)
	}
	r.upgrade(t, first, second)

	// The first node is lost with all that run on it. The second one is still closed.
	must(t, first.PowerOff())
	must(t, r.client.Delete(t.Context(), first.last(t)))
	first.deletePods(t.Context(), t)
	r.awaitReplicas(t, "", second)
	if opened := second.openedIn(second.BootID()); len(opened) > 0 {
		t.Error("the second node opened before its daemon was ready")
	}
	second.setReady(t, true)
	second.await(t, false)
	judgeSince(t.Context(), t, r.cluster, first.since, r.username)
	r.uninstall(t, first, second)
}

// upgrade changes an argument of the replicas. Meanwhile, one node stays open, and another one
// closed.
func (r *release) upgrade(t *testing.T, open, closed *host) {
	t.Helper()
	before := len(open.history())
	r.helm(t, "upgrade", "--values="+r.values, "--set=extraArgs={--workers=7}")
	r.awaitReplicas(t, "--workers=7", open, closed)
	must(t, testbed.AwaitGate(t.Context(), r.applier, gateName))
	if slices.ContainsFunc(open.history()[before:], isClosed) {
		t.Error("the upgrade closed an open node")
	}
	if opened := closed.openedIn(closed.BootID()); len(opened) > 0 {
		t.Error("the upgrade opened a closed node")
	}
}

// uninstall uninstalls nodegate while the first node is closed again, as docs/uninstall.md says.
func (r *release) uninstall(t *testing.T, first, second *host) {
	t.Helper()
	first.setReady(t, false)
	must(t, first.PowerOn())
	first.await(t, true)
	first.awaitAgent(t, false)
	r.helm(t, "uninstall", "--wait")
	run(t, r.program, "uninstall", "--kubeconfig", r.cluster.Kubeconfig())
	for _, h := range []*host{first, second} {
		node := h.last(t)
		if isClosed(node) {
			t.Errorf("%s has the taints %v", h.name, node.Spec.Taints)
		}
		for name := range node.Annotations {
			if strings.HasPrefix(name, v1alpha1.RecordAnnotationPrefix) || strings.HasPrefix(name, v1alpha1.OverrideAnnotationPrefix) {
				t.Errorf("%s has the annotation %s", h.name, name)
			}
		}
	}
	if _, err := testbed.GetGate(t.Context(), r.applier, gateName); !apierrors.IsNotFound(err) {
		t.Errorf("the gate still exists (%v)", err)
	}
}
