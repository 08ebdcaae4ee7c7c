// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// newGates returns new gates, each for the nodes of one of these pools, or for all nodes if there
// are none. Each waits for a DaemonSet of its own.
func newGates(count, pools int) (gates []v1alpha1.NodeGate, sets *gate.DaemonSets) {
	sets = &gate.DaemonSets{Observed: map[string]bool{"kube-system": true}}
	for i := range count {
		name := fmt.Sprintf("gate-%d", i)
		g := v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: name}}
		g.Spec.Taint = v1alpha1.Taint{Key: "example.com/" + name, Effect: corev1.TaintEffectNoSchedule}
		if pools > 0 {
			g.Spec.NodeSelector.MatchLabels = map[string]string{"pool": fmt.Sprint(i % pools)}
		}
		g.Spec.OpenWhen = []v1alpha1.Signal{{Name: "daemon", SignalSource: v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: name}}}}
		gates = append(gates, g)
		sets.Items = append(sets.Items, gate.DaemonSet{Namespace: "kube-system", Name: name, UID: "uid", Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}})
	}
	return gates, sets
}

// fleet returns nodes of these pools.
func fleet(count, pools int, sets *gate.DaemonSets) (nodes []gate.Facts) {
	for i := range count {
		nodes = append(nodes, gate.Facts{DaemonSets: sets, Node: gate.Node{
			Name: fmt.Sprintf("n%05d", i), UID: "uid", BootID: "b", Created: now.Add(-time.Hour),
			Labels:     map[string]string{"pool": fmt.Sprint(i % max(pools, 1))},
			Conditions: []gate.Condition{{Type: string(corev1.NodeReady), Status: corev1.ConditionTrue}},
		}})
	}
	return nodes
}

// BenchmarkNewGates previews new gates. The time per gate must not grow with their number.
func BenchmarkNewGates(b *testing.B) {
	for _, c := range []struct{ gates, nodes, pools int }{{250, 500, 0}, {500, 500, 0}, {250, 500, 50}, {500, 500, 50}, {1000, 500, 50}} {
		b.Run(fmt.Sprintf("gates=%d/nodes=%d/pools=%d", c.gates, c.nodes, c.pools), func(b *testing.B) {
			gates, sets := newGates(c.gates, c.pools)
			w := &World{Nodes: fleet(c.nodes, c.pools, sets), Now: now}
			for b.Loop() {
				if p := Of(w, Change{Apply: gates}); len(p.Gates) != c.gates {
					b.Fatalf("%d gates", len(p.Gates))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*c.gates), "µs/gate")
		})
	}
}
