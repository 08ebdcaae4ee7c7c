// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

const rolloutSize = 200

// Rolling a daemon over 200 nodes closes nothing and writes nothing. Istio's
// controller tainted and untainted every node upon every upgrade. Nothing but
// the grace for rollouts, of its default length, keeps the nodes open here: the
// damping is none, and the budget allows all. The test plays the DaemonSet
// controller: what it makes of a rolling update is a pod that terminates, one
// that is missing, and one that is not ready yet, node by node.
func TestSeedIstioRollout(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("cni")
	ng := critical("cni", "cni")
	ng.Spec.OpenWhen = append(ng.Spec.OpenWhen, v1alpha1.Signal{Name: "daemon", SignalSource: byDaemonSet("cni")})
	ng.Spec.Timing.CloseAfterSeconds = ptr.To[int32](0)
	e.declare(ng)
	fleet := e.fleet(rolloutSize)
	pods := make([]*corev1.Pod, len(fleet))
	index := make(map[*kubelet]int)
	for i, k := range fleet {
		index[k] = i
	}
	e.each(fleet, func(k *kubelet) {
		pod := k.daemonPod(ds)
		k.run(pod, true)
		pods[index[k]] = pod
	})
	e.eventually("the gate is open everywhere", func() error {
		if n := e.tainted(); n > 0 {
			return fmt.Errorf("%d nodes are closed", n)
		}
		return nil
	})
	before := e.fleetWrites()
	closed := e.watchFor(func(n *corev1.Node) bool { return isOld(n.Name) && hasTaint(n, keyA) })

	e.edit(ds, func() { ds.Spec.Template.Spec.Containers[0].Image = "daemon:2" })
	e.rolling(ds, 0)
	e.each(fleet, func(k *kubelet) {
		pod := pods[index[k]]
		k.must(k.admin.Delete(k.Context(), pod)) // terminating
		k.must(k.admin.Delete(k.Context(), pod, client.GracePeriodSeconds(0)))
		next := k.daemonPod(ds)
		k.run(next, false)
		k.run(next, true)
		pods[index[k]] = next
	})
	e.rolling(ds, rolloutSize)

	// A daemon that goes while nothing is rolled out closes its node at once: by
	// now the controller has dealt with all that was before.
	last := fleet[rolloutSize-1]
	e.must(e.admin.Delete(t.Context(), pods[rolloutSize-1], client.GracePeriodSeconds(0)))
	last.becomes("cni", isClosed, keyA)
	if n := closed(); n != 1 {
		t.Errorf("%d times a node was seen closed, want once, after the rollout", n)
	}
	if n := e.fleetWrites() - before; n != 1 {
		t.Errorf("nodegate wrote nodes %d times, want once, after the rollout", n)
	}
}

// rolling reports a DaemonSet's status with so many pods of the new template,
// and waits until the controller must have seen it.
func (e *env) rolling(ds *appsv1.DaemonSet, updated int32) {
	e.Helper()
	ds.Status.ObservedGeneration = ds.Generation
	ds.Status.DesiredNumberScheduled, ds.Status.UpdatedNumberScheduled = rolloutSize, updated
	e.must(e.admin.Status().Update(e.Context(), ds))
	e.settled()
}

// isOld tells whether a node is one of the fleet.
func isOld(name string) bool { return strings.HasPrefix(name, "old-") }

// tainted counts the nodes of the fleet on which keyA is.
func (e *env) tainted() (n int) {
	e.Helper()
	var nodes corev1.NodeList
	e.must(e.admin.List(e.Context(), &nodes))
	for i := range nodes.Items {
		if isOld(nodes.Items[i].Name) && hasTaint(&nodes.Items[i], keyA) {
			n++
		}
	}
	return n
}

// fleetWrites counts the controller's successful writes of nodes of the fleet,
// by the API server's audit log.
func (e *env) fleetWrites() (n int) {
	e.Helper()
	for _, event := range e.audit() {
		if event.writesNode() && isOld(event.ObjectRef.Name) {
			n++
		}
	}
	return n
}
