// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// history contains every list of foreign taints that a writer with optimistic locking
// writes to a node, in order, and the index of the last observed one.
type history struct {
	lists    [][]corev1.Taint
	observed int
}

// newHistory returns the lists of a writer that adds taints at either end, removes them, and
// reorders them.
func newHistory(rounds int) *history {
	var taints []corev1.Taint
	h := &history{lists: [][]corev1.Taint{nil}}
	for i := range rounds {
		added := corev1.Taint{Key: fmt.Sprintf("foreign-%d", i), Value: fmt.Sprint(i), Effect: corev1.TaintEffectNoSchedule}
		switch taints = slices.Clone(taints); i % 4 {
		case 0:
			taints = append(taints, added)
		case 1:
			taints = append([]corev1.Taint{added}, taints...)
		case 2:
			slices.Reverse(taints)
		default:
			taints = without(taints, fmt.Sprintf("foreign-%d", i-3))
		}
		h.lists = append(h.lists, taints)
	}
	return h
}

// write writes one list after the other to the node, and keeps the taints of other writers.
func (h *history) write(k *kubelet) {
	k.Helper()
	for _, list := range h.lists[1:] {
		err := k.editTaints(k.Context(), k.name, "foreign", func(taints []corev1.Taint) []corev1.Taint {
			others := slices.DeleteFunc(taints, isForeign)
			middle := len(list) / 2 // so that the index of every taint changes
			return slices.Concat(list[:middle], others, list[middle:])
		})
		if err != nil {
			k.Errorf("writing taints of node %s: %v", k.name, err)
		}
	}
}

func isForeign(t corev1.Taint) bool { return strings.HasPrefix(t.Key, "foreign-") }

// follows verifies that the foreign taints of a node equal a list of the writer that is not
// older than the last observed one: none is lost, moved or restored.
func (h *history) follows(n *corev1.Node) error {
	now := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return !isForeign(t) })
	for i := h.observed; i < len(h.lists); i++ {
		if slices.Equal(h.lists[i], now) {
			h.observed = i
			return nil
		}
	}
	return fmt.Errorf("foreign taints are %v, and were %v", now, h.lists[h.observed])
}

// Two controllers act as leader, daemons flap, and a writer changes foreign taints on every
// node, all at the same time. In every observed state of a node, the gates' taints and
// records agree, and foreign taints are unchanged.
func TestTwoLeadersAmongForeignWriters(t *testing.T) {
	const rounds = 40
	e := newEnv(t)
	e.startController(0)
	ds := e.daemonSet("agent")
	for name, key := range map[string]string{"first": keyA, "second": keyB, "third": keyB} {
		ng := on(onRegression(newGate(name, key, byDaemonSet("agent"))), "fleet", "")
		ng.Spec.Budget.MaxReclosed = percent("100%")
		e.declare(ng)
	}
	e.startController(0)
	fleet := make([]*kubelet, 6)
	histories := make(map[string]*history)
	for i := range fleet {
		fleet[i], _ = e.registerWith(fmt.Sprintf("n%d", i), "fleet", "")
		histories[fleet[i].name] = newHistory(rounds)
	}
	states := 0
	done := e.watchAll(func(n *corev1.Node) error {
		states++
		if h := histories[n.Name]; h != nil {
			return errors.Join(agrees(n), h.follows(n))
		}
		return agrees(n)
	})

	var running sync.WaitGroup
	for _, k := range fleet {
		running.Go(func() { histories[k.name].write(k) })
		running.Go(func() { k.flap(ds, rounds) })
	}
	running.Wait()
	for _, k := range fleet {
		k.becomes("first", isOpen, keyA)
		k.becomes("second", isOpen, keyB)
		k.becomes("third", isOpen, keyB)
	}
	e.settled()
	done()
	for _, k := range fleet {
		if h := histories[k.name]; h.observed != len(h.lists)-1 {
			t.Errorf("node %s: the writer's last list was not observed", k.name)
		}
	}
	t.Logf("%d states of nodes were observed", states)
}

// flap creates a daemon on the node whose readiness alternates, and is finally ready.
func (k *kubelet) flap(ds *appsv1.DaemonSet, rounds int) {
	k.Helper()
	pod := k.daemonPod(ds)
	for i := range rounds {
		k.run(pod, i%2 == 0)
	}
	k.run(pod, true)
}
