// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Parts.
//
// Gates interact on a node only if they have a taint key in common. A decision about
// one gate does not affect a gate with other keys. Gates are therefore divided into
// parts, such that no two parts share a key. Each part can be decided separately (see
// Facts.Part), with the same result for its gates as a decision about all gates.
//
// A part is decided separately when only its gates read what has changed. The last
// decision about the other gates remains valid if it left them nothing to do (see
// Decision.Settled), if nothing that they read has changed, and until the time at which
// the last decision might change (Decision.Recheck). Facts that any gate may read are
// not aspects and affect all gates: the node's labels, boot and liveness, taints that
// no gate owns, overrides, and DaemonSets. So does every change that is not known to
// affect fewer gates.
//
// A gate in dry run changes the facts for all gates at once. While there is one, all
// gates are one part.

// Parts is an immutable division of gates into parts that share no taint key, with an
// index of what each part reads.
type Parts struct {
	parts []Part
	// gates and keys map each gate and each taint key to its part.
	gates, keys map[string]int
	// aspects maps each aspect that a signal names to the parts that read it.
	aspects map[Aspect][]int
	// conditions and taints contain the parts that read all conditions or all taints.
	conditions, taints []int
}

// Part is a set of gates that are decided together.
type Part struct {
	// Gates contains the gates, sorted by name.
	Gates []Gate
	// Needs is what the gates' signals read.
	Needs Needs
}

// Divide divides gates into parts, given the DaemonSets that are known. The gates must
// be sorted by name.
func Divide(gates []Gate, sets *DaemonSets) *Parts {
	p := &Parts{gates: make(map[string]int, len(gates)), keys: make(map[string]int, len(gates)), aspects: make(map[Aspect][]int)}
	for number, members := range divide(gates) {
		part := Part{Gates: members}
		for i := range members {
			g := &members[i]
			p.gates[g.Name] = number
			// Other gates may have to read the taint of a gate that is not in force, see
			// Transient.GateKeys. The key is empty if the gate cannot be read.
			if g.Accepted && g.Taint.Key != "" {
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

// divide returns the gates by part. Within a part, they keep their order.
func divide(gates []Gate) [][]Gate {
	if anyInDryRun(gates) {
		return [][]Gate{gates}
	}
	first := make([]int, len(gates)) // an earlier gate of the same part, or the gate itself
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
	numbers := make(map[int]int, len(gates)) // by root, which is the part's first gate
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

// index adds what a part reads to the index.
func (p *Parts) index(part int, n *Needs) {
	addAll := func(kind AspectKind, names []string) {
		for _, name := range names {
			p.add(Aspect{Kind: kind, Name: name}, part)
		}
	}
	addAll(AspectCondition, n.Conditions)
	addAll(AspectAnnotation, n.Annotations)
	addAll(AspectAllocatable, n.Resources)
	addAll(AspectNodeInfo, n.NodeInfo)
	addAll(AspectResourceSlices, n.ResourceSlices)
	for _, query := range n.Pods {
		p.add(Aspect{Kind: AspectPods, Pods: query}, part)
	}
	for _, query := range n.Objects {
		p.add(query.Aspect(), part)
	}
	for _, query := range n.Devices {
		p.add(query.Aspect(), part)
	}
	if n.Heartbeats {
		p.add(Aspect{Kind: AspectHeartbeats}, part)
	}
	if n.CSINodes {
		p.add(Aspect{Kind: AspectCSINode}, part)
	}
	if n.AllConditions {
		p.conditions = append(p.conditions, part)
	}
	if n.Taints {
		p.taints = append(p.taints, part)
	}
}

func (p *Parts) add(a Aspect, part int) {
	if known := p.aspects[a]; !slices.Contains(known, part) {
		p.aspects[a] = append(known, part)
	}
}

// Touched returns the gates that read what has changed, and the gates that share a
// taint key with them. The part is empty if no gate reads it. The result is false if
// all gates must be decided. It is always false for nil Parts.
func (p *Parts) Touched(c Change) (Part, bool) {
	if p == nil || c.everything {
		return Part{}, false
	}
	var buffer [8]int
	touched := buffer[:0]
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

// touchedBy returns the parts that read an aspect, or false if that is unknown.
func (p *Parts) touchedBy(a *Aspect) ([]int, bool) {
	switch a.Kind {
	case AspectGroup, AspectRecord: // any gate may take over an orphaned record
		part, known := p.gates[a.Name]
		return []int{part}, known
	case AspectTaint:
		part, known := p.keys[a.Name]
		return append([]int{part}, p.taints...), known
	case AspectCondition:
		if name, ours := strings.CutPrefix(a.Name, v1alpha1.DeadlineConditionPrefix); ours {
			part, known := p.gates[name]
			return slices.Concat(p.aspects[*a], p.conditions, []int{part}), known
		}
		if len(p.conditions) > 0 {
			return slices.Concat(p.aspects[*a], p.conditions), true
		}
	}
	return p.aspects[*a], true
}

// join merges several parts into one.
func (p *Parts) join(numbers []int) Part {
	var all Part
	for _, number := range numbers {
		all.Gates = append(all.Gates, p.parts[number].Gates...)
		all.Needs.Add(p.parts[number].Needs)
	}
	slices.SortFunc(all.Gates, func(a, b Gate) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// settled reports whether no gate waits for a permission, depends on anything other
// than the node, or has a taint that a gate of another part may have, and the decision
// need not be repeated at once (see Decision.Settled).
func (d *decider) settled() bool {
	if d.again || len(d.Node.Overrides) > 0 {
		return false
	}
	for i := range d.slots {
		if s := &d.slots[i]; s.gate == nil || s.was != "" || s.verdict.Wants != "" || !d.hasCurrentTaint(s) {
			return false
		}
	}
	return true
}

// hasCurrentTaint reports whether the slot's recorded taint is one of its gate's
// current taints. A gate that was edited but must not act keeps another one. If a gate may
// not use its key, the key may not be in Transient.GateKeys: only the record shows the gates
// of other parts that the taint is transient.
func (d *decider) hasCurrentTaint(s *slot) bool {
	if s.keep && s.gate.Mode != v1alpha1.ModePaused {
		return false
	}
	acts := s.gate.Accepted && !s.keep
	isKnown := s.gate.Accepted || d.Transient.GateKeys[s.had.Key]
	return acts || s.had.Key == "" || isKnown && s.gate.owns(s.had.Key, s.had.Effect)
}
