// SPDX-License-Identifier: Apache-2.0

package gate

import "slices"

// Aspect is a part of what is known of a node that changes by itself, and that few
// gates look at.
type Aspect struct {
	Kind AspectKind
	// Name is the type of the condition, the key of the annotation or the taint, the
	// name of the resource, of the field of nodeInfo, of the DRA driver or of the gate.
	// Empty for other kinds.
	Name string
	// Pods says which pods, of AspectPods.
	Pods PodQuery
}

// AspectKind is a kind of aspects.
type AspectKind uint8

const (
	// AspectCondition is the status and transition time of a condition, but for Ready,
	// which all gates look at.
	AspectCondition AspectKind = iota + 1
	// AspectHeartbeats are the heartbeats of all conditions.
	AspectHeartbeats
	// AspectAnnotation is an annotation that is neither a record nor an override.
	AspectAnnotation
	// AspectAllocatable is one resource of the node's allocatable.
	AspectAllocatable
	// AspectNodeInfo is one field of the node's nodeInfo.
	AspectNodeInfo
	// AspectPods are those pods of the node that a query finds.
	AspectPods
	// AspectCSINode is the node's CSINode.
	AspectCSINode
	// AspectResourceSlices are the node's ResourceSlices of one driver.
	AspectResourceSlices
	// AspectRecord is the record of one gate.
	AspectRecord
	// AspectTaint is every taint of one key.
	AspectTaint
)

// Change tells what may have changed of what is known of a node. Whoever tells of
// more than has changed does no harm. Its zero value is that nothing has. Changes
// are values: none is changed by what is made of it.
type Change struct {
	everything bool
	aspects    []Aspect
}

// aspectsMax bounds a change that gathers while nobody looks at the node: of one
// with more aspects than this everything may have changed.
const aspectsMax = 16

// Everything may have changed.
func Everything() Change { return Change{everything: true} }

// ChangeOf returns the change of these aspects, and of nothing else. They are the
// caller's no more.
func ChangeOf(aspects ...Aspect) Change {
	if len(aspects) > aspectsMax {
		return Everything()
	}
	return Change{aspects: aspects}
}

// IsNothing tells whether nothing has changed.
func (c Change) IsNothing() bool { return !c.everything && len(c.aspects) == 0 }

// IsEverything tells whether everything may have changed.
func (c Change) IsEverything() bool { return c.everything }

// Aspects are those that have changed, if not everything has. They are read only.
func (c Change) Aspects() []Aspect { return c.aspects }

// And returns what has changed by both changes.
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
