// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// manyGates returns a world with this number of gates, each for the nodes of one of these pools, or for
// all nodes if there are none. Each waits for a DaemonSet of its own.
func manyGates(count, nodes, pools int) *World {
	w := &World{DaemonSets: &gate.DaemonSets{Observed: map[string]bool{"kube-system": true}}}
	for i := range count {
		name := fmt.Sprintf("gate-%04d", i)
		g := v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: name}}
		g.Spec.Taint = v1alpha1.Taint{Key: "example.com/" + name, Effect: corev1.TaintEffectNoSchedule}
		if pools > 0 {
			g.Spec.NodeSelector.MatchLabels = map[string]string{"pool": fmt.Sprint(i % pools)}
		}
		g.Spec.OpenWhen = []v1alpha1.Signal{{Name: "daemon", SignalSource: v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: name}}}}
		w.Gates = append(w.Gates, g)
		w.DaemonSets.Items = append(w.DaemonSets.Items, daemon(name))
	}
	for i := range nodes {
		w.Nodes = append(w.Nodes, &gate.Node{Name: fmt.Sprintf("n%05d", i), Labels: map[string]string{"pool": fmt.Sprint(i % max(pools, 1))}})
	}
	return w
}

// BenchmarkManyGates checks many gates. The time per gate grows at most with their number.
func BenchmarkManyGates(b *testing.B) {
	for _, c := range []struct{ gates, nodes, pools int }{{250, 500, 0}, {500, 500, 0}, {250, 500, 50}, {500, 500, 50}, {1000, 500, 50}, {2000, 5000, 50}} {
		b.Run(fmt.Sprintf("gates=%d/nodes=%d/pools=%d", c.gates, c.nodes, c.pools), func(b *testing.B) {
			w := manyGates(c.gates, c.nodes, c.pools)
			for b.Loop() {
				if r := Of(w); len(r.Gates) != c.gates {
					b.Fatalf("%d gates", len(r.Gates))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*c.gates), "µs/gate")
		})
	}
}
