// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/explain"
	"github.com/nodegate/nodegate/internal/gate"
)

// setup is what is expected to change on a node until the gates that hold it open: without this, a
// pod that requests what a gate waits for would never fit the node.
type setup struct {
	facts   *Facts
	node    *Node
	holding []explain.Gate
	types   types
}

// removes reports whether a taint is expected to be removed.
func (s *setup) removes(taint *corev1.Taint) bool {
	return len(s.holding) > 0 && gate.IsStartupTaint(taint.Key)
}

// adds reports whether the node is expected to get more of a resource.
func (s *setup) adds(name corev1.ResourceName) bool {
	return slices.ContainsFunc(s.holding, func(g explain.Gate) bool { return s.waitsFor(&g, name) })
}

// waitsFor reports whether a closed gate waits for a resource. A gate that names no resource may
// wait for the daemon that registers it.
func (s *setup) waitsFor(on *explain.Gate, name corev1.ResourceName) bool {
	g, listed := s.facts.Gates.Gate(on.Gate)
	if !listed { // it is deleted, or from a file
		r, _ := gate.ParseRecord(s.node.Facts.Node.Records[on.Gate])
		return r.Source == v1alpha1.SourceFiles && s.unregistered(name)
	}
	if g.CloseWhen {
		return false
	}
	names := len(g.Needs(s.node.Facts.DaemonSets).Resources) > 0
	for i := range on.Signals {
		switch {
		case on.Signals[i].State == gate.Holds.String():
		case !names:
			return s.unregistered(name)
		case slices.Contains(g.Signals[i].Needs(s.node.Facts.DaemonSets).Resources, string(name)):
			return true
		}
	}
	return false
}

// unregistered reports whether the node has no devices of a resource, but may get them: no node of
// its instance type is known not to have any.
func (s *setup) unregistered(name corev1.ResourceName) bool {
	if n := s.node.Status.Allocatable[name]; !n.IsZero() || !isExtended(name) {
		return false
	}
	has, known := s.types[s.node.instanceType()]
	return !known || has[name]
}

// isExtended reports whether a resource is one that is registered after the node, such as that of a
// device plugin.
func isExtended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// types contains, by instance type, the resources that nodes of the type have which no gate holds.
type types map[string]map[corev1.ResourceName]bool

func (t types) add(n *Node) {
	instanceType := n.instanceType()
	if instanceType == "" { // such nodes may be of any type
		return
	}
	if t[instanceType] == nil {
		t[instanceType] = make(map[corev1.ResourceName]bool)
	}
	for name, quantity := range n.Status.Allocatable {
		if !quantity.IsZero() {
			t[instanceType][name] = true
		}
	}
}

func (n *Node) instanceType() string { return n.Labels[corev1.LabelInstanceTypeStable] }
