// SPDX-License-Identifier: Apache-2.0

package gate

import "slices"

// Aspect is a part of what is known about a node that changes independently and that
// few gates read.
type Aspect struct {
	Kind AspectKind
	// Name is the type of the condition, the key of the annotation or taint, or the
	// name of the resource, nodeInfo field, DRA driver, object or device query, or gate. Empty for other
	// kinds.
	Name string
	// Pods is the query that selects the pods of AspectPods.
	Pods PodQuery
}

// AspectKind is the kind of an Aspect.
type AspectKind uint8

const (
	// AspectCondition is the status and transition time of a condition other than
	// Ready, which all gates read.
	AspectCondition AspectKind = iota + 1
	// AspectHeartbeats is the set of heartbeats of all conditions.
	AspectHeartbeats
	// AspectAnnotation is an annotation that is neither a record nor an override.
	AspectAnnotation
	// AspectAllocatable is one resource of the node's allocatable.
	AspectAllocatable
	// AspectNodeInfo is one field of the node's nodeInfo.
	AspectNodeInfo
	// AspectPods is the set of pods on the node that a query selects.
	AspectPods
	// AspectCSINode is the node's CSINode.
	AspectCSINode
	// AspectResourceSlices is the node's ResourceSlices of one driver.
	AspectResourceSlices
	// AspectDevices is what a query for devices finds for the node.
	AspectDevices
	// AspectObjects is the set of objects of the node that a query finds.
	AspectObjects
	// AspectRecord is the record of one gate.
	AspectRecord
	// AspectGroup is the group of the node for one gate (see Facts.Groups).
	AspectGroup
	// AspectTaint is the set of taints with one key.
	AspectTaint
)

// Change describes what may have changed about a node. It may include aspects that have
// not changed. The zero value means that nothing has changed. A Change is immutable.
type Change struct {
	everything bool
	aspects    []Aspect
}

// aspectsMax limits a change that accumulates while the node is not reconciled. If a
// change has more aspects, everything may have changed.
const aspectsMax = 16

// Everything returns a change that includes every aspect.
func Everything() Change { return Change{everything: true} }

// ChangeOf returns a change of exactly these aspects. The caller must not modify the
// slice afterwards.
func ChangeOf(aspects ...Aspect) Change {
	if len(aspects) > aspectsMax {
		return Everything()
	}
	return Change{aspects: aspects}
}

// IsNothing reports whether nothing has changed.
func (c Change) IsNothing() bool { return !c.everything && len(c.aspects) == 0 }

// IsEverything reports whether everything may have changed.
func (c Change) IsEverything() bool { return c.everything }

// Aspects returns the aspects that have changed, unless IsEverything is true. The
// caller must not modify them.
func (c Change) Aspects() []Aspect { return c.aspects }

// And returns the union of both changes.
func (c Change) And(other Change) Change {
	switch {
	case c.everything, other.IsNothing():
		return c
	case other.everything, c.IsNothing():
		return other
	}
	all := slices.Clip(c.aspects)
	for _, a := range other.aspects {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return ChangeOf(all...)
}
