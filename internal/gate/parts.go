// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"slices"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Parts.
//
// Gates meet on a node only where they have a taint key in common: what one of
// them decides is nothing to a gate with other keys. So gates fall into parts, of
// which no two share a key, and of which each can be decided about alone (see
// Facts.Part) with the outcome that a decision about all would have had for it.
//
// Alone it is decided about when something has changed that only its gates look
// at. The others are at rest: what was decided about them last, with nothing left
// to do (see Decision.Settled), still stands, for nothing that they look at has
// changed, and it is not yet the time of which the last decision said that it might
// change by itself. What every gate may look at is no aspect, and touches all of
// them: the node's labels, its boot, whether it reports, foreign taints, overrides,
// DaemonSets. So does whatever is not known to touch fewer.
//
// A gate in dry run supposes what the node would be, for all gates at once: while
// there is one, all gates are one part.

// Parts are gates, divided so that no two parts share a taint key, and what each
// part looks at. They do not change any more.
type Parts struct {
	parts []Part
	// gates and keys tell which part a gate and a taint key belong to.
	gates, keys map[string]int
	// aspects are those that signals name, and the parts that look at them.
	aspects map[Aspect][]int
	// conditions and taints are the parts that look at all conditions, or at all taints.
	conditions, taints []int
}

// Part is some of the gates, that are decided about alone.
type Part struct {
	// Gates are sorted by name.
	Gates []Gate
	// Needs are what their signals look at.
	Needs Needs
}

// Divide divides gates, which are sorted by name, given the DaemonSets that are known.
func Divide(gates []Gate, sets *DaemonSets) *Parts {
	p := &Parts{gates: make(map[string]int, len(gates)), keys: make(map[string]int, len(gates)), aspects: make(map[Aspect][]int)}
	for number, members := range divide(gates) {
		part := Part{Gates: members}
		for i := range members {
			g := &members[i]
			p.gates[g.Name] = number
			if g.Taint.Key != "" { // or it cannot be read, see Transient.GateKeys
				for _, t := range g.Taints() {
					p.keys[t.Key] = number
				}
			}
			part.Needs.Add(g.Needs(sets))
		}
		p.parts = append(p.parts, part)
		p.index(number, &part.Needs)
	}
	return p
}

// divide returns the gates by part. Within a part they keep their order.
func divide(gates []Gate) [][]Gate {
	if anyInDryRun(gates) {
		return [][]Gate{gates}
	}
	first := make([]int, len(gates)) // a gate of the same part that comes before, or itself
	root := func(i int) int {
		for first[i] != i {
			i = first[i]
		}
		return i
	}
	withKey := make(map[string]int, len(gates))
	for i := range gates {
		first[i] = i
		for _, t := range gates[i].Taints() {
			if other, known := withKey[t.Key]; known {
				a, b := root(other), root(i)
				first[max(a, b)] = min(a, b)
			}
			withKey[t.Key] = i
		}
	}
	var parts [][]Gate
	numbers := make(map[int]int, len(gates)) // by root, which comes first
	for i := range gates {
		number, known := numbers[root(i)]
		if !known {
			number = len(parts)
			numbers[root(i)], parts = number, append(parts, nil)
		}
		parts[number] = append(parts[number], gates[i])
	}
	return parts
}

// index takes note of what a part looks at.
func (p *Parts) index(part int, n *Needs) {
	looks := func(kind AspectKind, names []string) {
		for _, name := range names {
			p.look(Aspect{Kind: kind, Name: name}, part)
		}
	}
	looks(AspectCondition, n.Conditions)
	looks(AspectAnnotation, n.Annotations)
	looks(AspectAllocatable, n.Resources)
	looks(AspectNodeInfo, n.NodeInfo)
	looks(AspectResourceSlices, n.ResourceSlices)
	for _, query := range n.Pods {
		p.look(Aspect{Kind: AspectPods, Pods: query}, part)
	}
	if n.Heartbeats {
		p.look(Aspect{Kind: AspectHeartbeats}, part)
	}
	if n.CSINodes {
		p.look(Aspect{Kind: AspectCSINode}, part)
	}
	if n.AllConditions {
		p.conditions = append(p.conditions, part)
	}
	if n.Taints {
		p.taints = append(p.taints, part)
	}
}

func (p *Parts) look(a Aspect, part int) {
	if known := p.aspects[a]; !slices.Contains(known, part) {
		p.aspects[a] = append(known, part)
	}
}

// Touched returns the gates that look at what has changed, together with those that
// share a taint key with them; none if nobody looks at it. It is false where all
// gates have to be decided about, and always of nil.
func (p *Parts) Touched(c Change) (Part, bool) {
	if p == nil || c.everything {
		return Part{}, false
	}
	var room [8]int
	touched := room[:0]
	for i := range c.aspects {
		some, known := p.touchedBy(&c.aspects[i])
		if !known {
			return Part{}, false
		}
		touched = append(touched, some...)
	}
	slices.Sort(touched)
	touched = slices.Compact(touched)
	switch len(touched) {
	case 0:
		return Part{}, true
	case len(p.parts):
		return Part{}, false
	case 1:
		return p.parts[touched[0]], true
	}
	return p.join(touched), true
}

// touchedBy returns the parts that an aspect touches. It is false where that is not
// known.
func (p *Parts) touchedBy(a *Aspect) ([]int, bool) {
	switch a.Kind {
	case AspectRecord: // one without a gate is all gates' to take over
		part, known := p.gates[a.Name]
		return []int{part}, known
	case AspectTaint:
		part, known := p.keys[a.Name]
		return append([]int{part}, p.taints...), known && !speaksOfNode(a.Name)
	case AspectCondition:
		if len(p.conditions) > 0 {
			return slices.Concat(p.aspects[*a], p.conditions), true
		}
	}
	return p.aspects[*a], true
}

// speaksOfNode tells whether a taint says something about the node to all gates,
// even if it is a gate's.
func speaksOfNode(key string) bool {
	return key == v1alpha1.TaintCloudShutdown || slices.Contains(setupTaints, key)
}

// join makes one part of several.
func (p *Parts) join(numbers []int) Part {
	var all Part
	for _, number := range numbers {
		all.Gates = append(all.Gates, p.parts[number].Gates...)
		all.Needs.Add(p.parts[number].Needs)
	}
	slices.SortFunc(all.Gates, func(a, b Gate) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// settled tells whether no gate waits for anybody, is held by something that is not
// the node's, or has a taint that another part's gate may have (see Decision).
func (d *decider) settled() bool {
	if len(d.Node.Overrides) > 0 {
		return false
	}
	for i := range d.slots {
		if s := &d.slots[i]; s.gate == nil || s.was != "" || s.verdict.Wants != "" || !s.isAtHome() {
			return false
		}
	}
	return true
}

// isAtHome tells whether the slot's taint is one that its gate has now. A gate that is
// edited, and may not act, keeps another.
func (s *slot) isAtHome() bool {
	if s.keep && s.gate.Mode != v1alpha1.ModePaused {
		return false
	}
	acts := s.gate.Accepted && !s.keep
	return acts || s.had.Key == "" || s.gate.owns(s.had.Key, s.had.Effect)
}
