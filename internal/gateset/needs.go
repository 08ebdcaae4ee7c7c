// SPDX-License-Identifier: Apache-2.0

package gateset

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Needs returns what must be observed for all gates.
func (s *Set) Needs(sets *gate.DaemonSets) gate.Needs {
	return s.needs(sets, func(*gate.Gate) bool { return true })
}

// NeedsOn returns what must be observed for the gates that select the node or have a
// record on it.
func (s *Set) NeedsOn(node *corev1.Node, sets *gate.DaemonSets) gate.Needs {
	return s.needs(sets, func(g *gate.Gate) bool {
		_, recorded := node.Annotations[v1alpha1.RecordAnnotationPrefix+g.Name]
		return recorded || g.Selector.Matches(labels.Set(node.Labels))
	})
}

// needs returns the needs of the included gates, sorted and without duplicates.
func (s *Set) needs(sets *gate.DaemonSets, include func(*gate.Gate) bool) gate.Needs {
	var all gate.Needs
	for i := range s.Gates {
		if g := &s.Gates[i]; include(g) {
			all.Add(g.Needs(sets))
		}
	}
	for _, names := range []*[]string{&all.DaemonSetNamespaces, &all.Annotations, &all.Resources, &all.NodeInfo, &all.ResourceSlices} {
		slices.Sort(*names)
		*names = slices.Compact(*names)
	}
	slices.SortFunc(all.Pods, func(a, b gate.PodQuery) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Selector, b.Selector), cmp.Compare(a.Annotation, b.Annotation), compareBools(a.Runs, b.Runs))
	})
	all.Pods = slices.Compact(all.Pods)
	slices.SortFunc(all.Devices, gate.CompareDeviceQueries)
	all.Devices = slices.Compact(all.Devices)
	slices.SortFunc(all.Objects, gate.CompareObjectQueries)
	all.Objects = slices.Compact(all.Objects)
	return all
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
