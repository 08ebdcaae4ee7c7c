// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/explain"
	"github.com/nodegate/nodegate/internal/gate"
)

// setup predicts which obstacles disappear from a held node before its gates open. Without it, a
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

// adds reports whether the node is expected to get this quantity of a resource.
func (s *setup) adds(name corev1.ResourceName, want resource.Quantity) bool {
	if most, has := s.types[s.node.instanceType()][name]; has && most.Cmp(want) < 0 {
		return false
	}
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

// unregistered reports whether the node has no devices of a resource, but may get them: it is not
// known that nodes of its instance type have none.
func (s *setup) unregistered(name corev1.ResourceName) bool {
	if n := s.node.Status.Allocatable[name]; !n.IsZero() || !isExtended(name) {
		return false
	}
	resources, known := s.types[s.node.instanceType()]
	_, has := resources[name]
	return !known || has
}

// isExtended reports whether a resource is one that is registered after the node, such as that of a
// device plugin.
func isExtended(name corev1.ResourceName) bool {
	return strings.Contains(string(name), "/") && !strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// settledAfter is how long a node must have been Ready until its devices count as registered.
const settledAfter = 10 * time.Minute

// settled reports whether the node is not expected to get more resources: it has been Ready for some
// time, and has neither a startup taint nor a closed gate, even one whose taint the pod tolerates.
func (n *Node) settled(now time.Time) bool {
	liveness, since := n.Facts.Node.Liveness()
	if created := n.Facts.Node.Created; since.Before(created) { // the clock of the kubelet may be slow
		since = created
	}
	closed := func(record string) bool {
		r, err := gate.ParseRecord(record)
		return err != nil || r.State == v1alpha1.StateClosed
	}
	return liveness == gate.Ready && now.Sub(since) > settledAfter &&
		!slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return gate.IsStartupTaint(t.Key) }) &&
		!slices.ContainsFunc(slices.Collect(maps.Values(n.Facts.Node.Records)), closed)
}

// types contains, by instance type, the largest quantity of each resource that a settled node of the
// type has which no gate holds. Resources that none of them has are omitted.
type types map[string]corev1.ResourceList

func (t types) add(n *Node) {
	instanceType := n.instanceType()
	if instanceType == "" { // such nodes may be of any type
		return
	}
	if t[instanceType] == nil {
		t[instanceType] = corev1.ResourceList{}
	}
	// Devices that are unhealthy, such as while their plugin restarts, are only in the capacity.
	for _, list := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
		for name, quantity := range list {
			if quantity.Cmp(t[instanceType][name]) > 0 {
				t[instanceType][name] = quantity
			}
		}
	}
}

func (n *Node) instanceType() string { return n.Labels[corev1.LabelInstanceTypeStable] }
