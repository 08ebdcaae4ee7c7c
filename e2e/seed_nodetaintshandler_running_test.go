// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

const initializingKey = "startup.k8s.io/initializing"

// nodetaintshandler simulates nodetaintshandler, which removes its taint as soon as one init pod
// in any namespace is ready or annotated, regardless of the others.
func nodetaintshandler() *writer {
	return removesWhen("nodetaintshandler", initializingKey, func(s *nodeView) bool {
		return slices.ContainsFunc(s.pods, func(pod corev1.Pod) bool {
			return pod.Labels["startup.k8s.io/component"] == "init" && (pod.Annotations[readyKey] == "true" || isReady(&pod))
		})
	})
}

// While nodetaintshandler still runs, both taint new nodes, and it removes the taint because of
// a foreign pod. nodegate restores the taint once, and reports the other writer. Once
// nodetaintshandler is removed, the gate waits for its own pods.
func TestSeedNodetaintshandlerStillRunning(t *testing.T) {
	const preset = "init-daemonset"
	for name, removed := range map[string]bool{"removed": true, "still running": false} {
		t.Run(name, func(t *testing.T) {
			e, began := newEnv(t), time.Now()
			e.prepareSystemNamespaces()
			e.startController(0)
			labels := map[string]string{"startup.k8s.io/component": "init"}
			init, foreign := e.daemonIn("kube-system", "node-init", labels), e.daemonIn(daemonNamespace, "foreign", labels)
			e.applyPreset(preset)
			e.inForce(preset)
			w := nodetaintshandler()
			w.silenced = removed
			e.start(w)
			k := e.kubelet("n1")
			k.register(tainted(corev1.Taint{Key: initializingKey, Value: "wait", Effect: corev1.TaintEffectNoSchedule})) // like its webhook
			if n := k.count(initializingKey); n != 1 {
				t.Fatalf("the node has the taint %d times, want once", n)
			}
			untainted := func() int { return 0 }
			if removed {
				untainted = k.countUntainted(initializingKey)
			}
			k.annotate(k.daemonPod(foreign), true)
			pod := k.daemonPod(init)
			k.run(pod, false)
			if removed {
				e.waitsFor(preset, "n1", v1alpha1.ReadingPodNotReady)
			} else {
				e.contendedBy(preset, w.name)
				e.must(k.recorded(preset, isClosed))
			}
			if n := untainted(); n > 0 {
				t.Errorf("the node was without its taint in %d states", n)
			}
			k.run(pod, true)
			k.becomes(preset, isOpen, initializingKey)
			if writes, most := len(k.nodeWrites()), 3+attempts(began); writes > most || removed && writes != 1 {
				t.Errorf("nodegate wrote the node %d times, want %d at most, and one if nodetaintshandler is removed", writes, most)
			}
		})
	}
}
