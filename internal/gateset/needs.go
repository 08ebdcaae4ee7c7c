// SPDX-License-Identifier: Apache-2.0

package gateset

import (
	"cmp"
	"fmt"
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

// needs returns the needs of the included gates, sorted and without duplicates, except objects
// that are not observed because of ObjectSourcesMax.
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
	all.Objects = slices.DeleteFunc(slices.Compact(all.Objects), s.refuses)
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

// ObjectSourcesMax is the maximum number of sources whose objects are observed for all gates.
// One gate can name 128 of them. Each is watched, and watches of different kinds cannot be
// shared. If a kind is not served or may not be read, this is checked again every few seconds.
const ObjectSourcesMax = 128

// limitObjects determines which objects are not observed. Those of gates in force come first, so that
// no author without permission for a taint uses up the limit, and then those of older gates.
func (s *Set) limitObjects() {
	byAge := make([]*gate.Gate, len(s.Gates))
	for i := range s.Gates {
		byAge[i] = &s.Gates[i]
	}
	slices.SortFunc(byAge, func(a, b *gate.Gate) int {
		return cmp.Or(compareBools(b.Accepted, a.Accepted), a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	observed := make(map[gate.ObjectSource]bool)
	s.refusedObjects = make(map[gate.ObjectSource]bool)
	for _, g := range byAge {
		for _, query := range g.Needs(&gate.DaemonSets{}).Objects {
			if observed[query.ObjectSource] || len(observed) < ObjectSourcesMax {
				observed[query.ObjectSource] = true
			} else {
				s.refusedObjects[query.ObjectSource] = true
			}
		}
	}
}

// refuses reports whether the objects of a query are not observed because of the limit.
func (s *Set) refuses(q gate.ObjectQuery) bool { return s.refusedObjects[q.ObjectSource] }

// ObjectsError returns an error if a gate needs objects that are not observed because of
// ObjectSourcesMax. The signals that read them are unknown.
func (s *Set) ObjectsError(g *gate.Gate) error {
	all := g.Needs(&gate.DaemonSets{}).Objects
	i := slices.IndexFunc(all, s.refuses)
	if i < 0 {
		return nil
	}
	return fmt.Errorf("cannot observe objects %s: signals of kind object can use at most %d combinations of version, kind, namespace and matchLabels in total, "+
		"and older gates or other signals of this gate use that many: delete gates or signals, or use fewer combinations", all[i].ObjectSource, ObjectSourcesMax)
}
