// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller/controllertest"
	"github.com/nodegate/nodegate/internal/gate"
)

// noZone is the zone of nodes without a zone label in the tests' results.
const noZone = "no label"

// closedByZone returns the number of nodes with the taint, by zone label.
func (w *world) closedByZone() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[string]int)
	for _, n := range w.nodes {
		zone, labelled := n.Labels[corev1.LabelTopologyZone]
		if !labelled {
			zone = noZone
		}
		if len(n.Taints) > 0 {
			out[zone]++
		}
	}
	return out
}

// A budget applies to each zone, with any name. Nodes without a zone label and with an
// empty one share a budget.
func TestBudgetByZone(t *testing.T) {
	for name, c := range map[string]struct {
		zones  []string // with ten nodes each, all of which must close
		budget intstr.IntOrString
		want   map[string]int
		most   int // sum of nodes without a zone label and with an empty one; zero if want applies
	}{
		"known zones":              {[]string{"a", "b"}, intstr.FromString("20%"), map[string]int{"a": 2, "b": 2}, 0},
		"no label":                 {[]string{noZone}, intstr.FromString("20%"), map[string]int{noZone: 2}, 0},
		"an empty label":           {[]string{""}, intstr.FromString("20%"), map[string]int{"": 2}, 0},
		"none and empty are one":   {[]string{noZone, ""}, intstr.FromInt32(3), nil, 3},
		"one with and one without": {[]string{"a", noZone}, intstr.FromInt32(3), map[string]int{"a": 3, noZone: 3}, 0},
		"an unusual name":          {[]string{"Mars.1_x", "a"}, intstr.FromInt32(1), map[string]int{"Mars.1_x": 1, "a": 1}, 0},
		"no budget":                {[]string{"a", noZone}, intstr.FromInt32(0), map[string]int{}, 0},
		"all may close":            {[]string{"a", noZone}, intstr.FromString("100%"), map[string]int{"a": 10, noZone: 10}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, controllertest.Gate("gate", closesBy(`"bad" in labels`), func(s *v1alpha1.NodeGateSpec) { s.Budget.MaxReclosed = &c.budget }))
				w.add(10*len(c.zones), func(i int, n *gate.Node) {
					n.Labels = map[string]string{"bad": "", corev1.LabelTopologyZone: c.zones[i/10]}
					if c.zones[i/10] == noZone {
						delete(n.Labels, corev1.LabelTopologyZone)
					}
				})
				defer w.start(logr.Discard(), interceptor.Funcs{})()
				controllertest.Pass(time.Minute)
				got := w.closedByZone()
				if c.most > 0 && got[noZone]+got[""] != c.most || c.most == 0 && !maps.Equal(got, c.want) {
					t.Errorf("closed %v, want %v (%d)", got, c.want, c.most)
				}
			})
		})
	}
}

// In zones with one node, that node may close under any budget except zero.
func TestBudgetOfZonesWithOneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", closesBy(`"bad" in labels`), func(s *v1alpha1.NodeGateSpec) { s.Budget.MaxReclosed = new(intstr.FromString("1%")) }))
		w.add(5, func(_ int, n *gate.Node) {
			n.Labels = map[string]string{"bad": "", corev1.LabelTopologyZone: "z-" + n.Name}
		})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		if n := w.closed(); n != 5 {
			t.Errorf("%d nodes are closed, want all 5", n)
		}
	})
}

// A closed node that moves to another zone counts there, and no longer in the old one. No
// node opens because of this, even if the budget is exceeded.
func TestBudgetWhenTheZoneChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, controllertest.Gate("gate", closesBy(`"bad" in labels`), func(s *v1alpha1.NodeGateSpec) { s.Budget.MaxReclosed = new(intstr.FromInt32(1)) }))
		w.add(4, func(i int, n *gate.Node) {
			n.Labels = map[string]string{"bad": "", corev1.LabelTopologyZone: []string{"a", "b"}[i%2]}
		})
		defer w.start(logr.Discard(), interceptor.Funcs{})()
		controllertest.Pass(time.Minute)
		if got := w.closedByZone(); !maps.Equal(got, map[string]int{"a": 1, "b": 1}) {
			t.Fatalf("closed %v", got)
		}
		moves := "n0000"
		if len(w.node(moves).Taints) == 0 {
			moves = "n0002"
		}
		w.change(moves, func(n *gate.Node) { delete(n.Labels, corev1.LabelTopologyZone) })
		controllertest.Pass(time.Minute)
		if got := w.closedByZone(); !maps.Equal(got, map[string]int{noZone: 1, "a": 1, "b": 1}) {
			t.Errorf("closed %v after one lost its zone", got)
		}
		w.change(moves, func(n *gate.Node) { n.Labels[corev1.LabelTopologyZone] = "b" })
		controllertest.Pass(time.Minute)
		if got := w.closedByZone(); !maps.Equal(got, map[string]int{"a": 1, "b": 2}) {
			t.Errorf("closed %v after it moved to zone b", got)
		}
		// Zone b is still at its budget after one of its two closed nodes has opened.
		w.change(moves, func(n *gate.Node) { delete(n.Labels, "bad") })
		controllertest.Pass(time.Minute)
		if got := w.closedByZone(); got["b"] != 1 {
			t.Errorf("closed %v after it opened", got)
		}
	})
}
