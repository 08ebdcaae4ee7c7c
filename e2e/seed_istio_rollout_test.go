// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

const rolloutSize = 200

// A rollout of a daemon on 200 nodes closes no gate and writes no node. Istio's controller
// tainted every node, and removed the taint, during every upgrade. Only the default
// rolloutGraceSeconds keeps the gates open here: closeAfterSeconds is 0, and the budget is
// 100%. The test simulates the DaemonSet controller's rolling update: on each node, the pod
// terminates, is missing, and is then replaced by one that is not ready yet.
func TestSeedIstioRollout(t *testing.T) {
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("cni")
	ng := critical("cni", "cni")
	ng.Spec.OpenWhen = append(ng.Spec.OpenWhen, v1alpha1.Signal{Name: "daemon", SignalSource: byDaemonSet("cni")})
	ng.Spec.Timing.CloseAfterSeconds = new(int32(0))
	e.declare(ng)
	fleet := e.fleet(rolloutSize)
	var mu sync.Mutex
	pods := make(map[*kubelet]*corev1.Pod)
	setPod := func(k *kubelet, pod *corev1.Pod) {
		mu.Lock()
		defer mu.Unlock()
		pods[k] = pod
	}
	e.each(fleet, func(k *kubelet) {
		pod := k.daemonPod(ds)
		k.run(pod, true)
		setPod(k, pod)
	})
	e.eventually("the gate is open everywhere", func() error {
		if n := e.tainted(); n > 0 {
			return fmt.Errorf("%d nodes are closed", n)
		}
		return nil
	})
	before := e.writesByNode(fleet...)
	closed := e.watchFor(func(n *corev1.Node) bool { return isOld(n.Name) && hasTaint(n, keyA) })

	e.edit(ds, func() { ds.Spec.Template.Spec.Containers[0].Image = "daemon:2" })
	e.rolling(ds, 0)
	e.each(fleet, func(k *kubelet) {
		mu.Lock()
		pod := pods[k]
		mu.Unlock()
		k.must(k.admin.Delete(k.Context(), pod)) // terminating
		k.must(k.admin.Delete(k.Context(), pod, client.GracePeriodSeconds(0)))
		next := k.daemonPod(ds)
		k.run(next, false)
		k.run(next, true)
		setPod(k, next)
	})
	e.podsObserved(ds) // an old state of a pod must not meet the complete rollout
	e.rolling(ds, rolloutSize)

	// When the daemon fails after the rollout, the gate closes immediately. By then, the
	// controller has processed the rollout.
	last := fleet[rolloutSize-1]
	e.must(e.admin.Delete(t.Context(), pods[last], client.GracePeriodSeconds(0)))
	last.becomes("cni", isClosed, keyA)
	if n := closed(); n != 1 {
		t.Errorf("nodes were closed in %d states, want one, after the rollout", n)
	}
	for name, writes := range e.writesByNode(fleet...) {
		want := len(before[name])
		if name == last.name {
			want++
		}
		if len(writes) != want {
			t.Errorf("nodegate wrote node %s %d times, want %d, of which %d before the rollout", name, len(writes), want, len(before[name]))
		}
	}
}

// rolling writes a DaemonSet's status with this number of updated pods, and waits until the
// controller has observed it.
func (e *env) rolling(ds *appsv1.DaemonSet, updated int32) {
	e.Helper()
	ds.Status.ObservedGeneration = ds.Generation
	ds.Status.DesiredNumberScheduled, ds.Status.UpdatedNumberScheduled = rolloutSize, updated
	e.must(e.admin.Status().Update(e.Context(), ds))
	e.daemonSetsObserved()
}

// isOld reports whether a node is part of the fleet.
func isOld(name string) bool { return strings.HasPrefix(name, "old-") }

// tainted returns the number of nodes of the fleet that have keyA.
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
