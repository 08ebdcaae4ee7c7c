// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// settled waits until the controller has observed all earlier changes of nodes and gates:
// it opens a gate on a separate node. This proves nothing about pods and other objects, each
// of which has its own watch, and nothing about a node that a restarted controller has not
// reconciled yet. Where a test depends on these, it waits for their outcome.
func (e *env) settled() {
	e.Helper()
	fence, _ := e.registerWith("fence", "fence", "")
	e.must(e.admin.Create(e.Context(), fenceGate()))
	fence.becomes("fence", isOpen, keyB)
	e.must(e.admin.Delete(e.Context(), fence.node()))
	e.must(e.admin.Delete(e.Context(), fenceGate()))
	e.fenceDeleted("fence")
}

// fenceDeleted waits until the API server no longer closes a deleted gate on new nodes.
func (e *env) fenceDeleted(name string) {
	e.Helper()
	e.eventually("the fence gate is deleted", func() error {
		_, present := e.closedAtBirth()[name]
		return unless(!present)
	})
}

func fenceGate() *v1alpha1.NodeGate {
	ng := on(newGate("fence", keyB, byLabel("fence")), "fence", "")
	ng.Spec.ExistingNodes = v1alpha1.ExistingAdopt
	return ng
}

// podsObserved waits until the controller has observed all earlier changes of the
// DaemonSet's pods. They come in one watch, in order, and before the pod that opens the gate
// of the DaemonSet's name on a separate node.
func (e *env) podsObserved(ds *appsv1.DaemonSet) {
	e.Helper()
	fence, pod := e.openNode("pod-fence", ds)
	e.must(e.admin.Delete(e.Context(), pod, client.GracePeriodSeconds(0)))
	e.must(e.admin.Delete(e.Context(), fence.node()))
}

// daemonSetsObserved waits until the controller has observed all earlier changes of DaemonSets
// in their namespace, of which some gate must need one. They come in one watch, in order, and
// before the DaemonSet of another gate.
func (e *env) daemonSetsObserved() {
	e.Helper()
	const name = "set-fence"
	ds := e.daemonSet(name)
	ng := e.declare(on(newGate(name, keyB, byDaemonSet(name)), name, ""))
	fence, _ := e.registerWith(name, name, "")
	pod := fence.daemonPod(ds)
	fence.run(pod, true)
	fence.becomes(name, isOpen, keyB)
	e.must(e.admin.Delete(e.Context(), pod, client.GracePeriodSeconds(0)))
	for _, o := range []client.Object{fence.node(), ng, ds} {
		e.must(e.admin.Delete(e.Context(), o))
	}
	e.fenceDeleted(name)
}

// waitNextSecond waits until the clock shows another second.
func (e *env) waitNextSecond() {
	e.Helper()
	now := time.Now().Unix()
	e.eventually("the next second", func() error { return unless(time.Now().Unix() != now) })
}
