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

// nodetaintshandler removes its taint as soon as one init pod of any namespace is
// ready, or says so by its annotation, whatever the others say.
func nodetaintshandler() *writer {
	return removesWhen("nodetaintshandler", initializingKey, func(s *nodeView) bool {
		return slices.ContainsFunc(s.pods, func(pod corev1.Pod) bool {
			return pod.Labels["startup.k8s.io/component"] == "init" && (pod.Annotations[readyKey] == "true" || isReady(&pod))
		})
	})
}

// While nodetaintshandler still runs, both have new nodes tainted, and it removes
// the taint on the word of anybody's pod. Put back once, and then told of; with
// the other one gone, the gate waits for its own pods.
func TestSeedNodetaintshandlerStillRunning(t *testing.T) {
	const preset = "init-daemonset"
	for name, silenced := range map[string]bool{"removed": true, "still running": false} {
		t.Run(name, func(t *testing.T) {
			e, began := newEnv(t), time.Now()
			e.prepareSystemNamespaces()
			e.startController(0)
			labels := map[string]string{"startup.k8s.io/component": "init"}
			init, anybody := e.daemonIn("kube-system", "node-init", labels), e.daemonIn(daemonNamespace, "anybody", labels)
			e.applyPreset(preset)
			e.inForce(preset)
			w := nodetaintshandler()
			w.silenced = silenced
			e.start(w)
			k := e.kubelet("n1")
			k.register(tainted(corev1.Taint{Key: initializingKey, Value: "wait", Effect: corev1.TaintEffectNoSchedule})) // by its webhook
			if n := k.count(initializingKey); n != 1 {
				t.Fatalf("the node has the taint %d times", n)
			}
			bare := func() int { return 0 }
			if silenced {
				bare = k.bare(initializingKey)
			}
			k.annotate(k.daemonPod(anybody), true)
			pod := k.daemonPod(init)
			k.run(pod, false)
			if silenced {
				e.waitsFor(preset, "n1", v1alpha1.ReadingPodNotReady)
			} else {
				e.eventually("the fight is told, and the writer named", func() error { return e.contendedWith(preset, w.name) })
				e.must(k.recorded(preset, isClosed))
			}
			if n := bare(); n > 0 {
				t.Errorf("the node was seen without its taint %d times", n)
			}
			k.run(pod, true)
			k.becomes(preset, isOpen, initializingKey)
			if writes, most := len(e.nodeWrites("n1")), 3+attempts(began); writes > most || silenced && writes != 1 {
				t.Errorf("nodegate wrote the node %d times, want %d at most, and once if alone", writes, most)
			}
		})
	}
}
