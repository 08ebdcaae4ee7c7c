// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// settleOrphans handles records without a gate. If their source is complete, the gate
// was deleted. Another gate with the same taint then takes over the record, so that
// renaming a gate does not open it; otherwise, the record is removed. It stays while a gate
// with the same taint is broken, such as one that is still being compiled, because it is unknown
// whether that gate selects the node.
func (d *decider) settleOrphans() {
	var orphans []*slot
	unreadable := false
	for i := range d.slots {
		if s := &d.slots[i]; s.gate == nil {
			orphans, unreadable = append(orphans, s), unreadable || s.garbled
		}
	}
	if len(orphans) == 0 {
		return
	}
	heirs, stray := d.heirs(), unreadable && d.carriesStray()
	for _, s := range orphans {
		switch {
		case s.before != nil && !d.DeletedGates[s.name] && !d.CompleteSources[cmp.Or(s.before.Source, v1alpha1.SourceCRD)]:
			d.hold(s)
		case d.frozen(s), s.garbled && stray, d.mayInherit(s):
			d.hold(s)
		default:
			s.verdict.Reason = v1alpha1.ReasonGateDeleted
			if s.before != nil {
				d.takeOver(s, heirs)
				s.verdict.ClosedSince = s.before.TaintedSince(&d.Node)
			}
		}
	}
}

// carriesStray reports whether the node carries a taint that may belong to a gate that no
// longer exists: nodegate may have added it, and no known gate accounts for it. While
// there is such a taint, an unreadable record is kept, because it is the only trace of the
// taint's origin. It is removed when the taint is gone.
func (d *decider) carriesStray() bool {
	known := make(map[TaintID]bool, len(d.slots))
	for i := range d.slots {
		s := &d.slots[i]
		known[IDOf(s.had)] = true
		if g := s.gate; g != nil && g.Accepted && s.selected && d.acts(g) {
			known[IDOf(g.Taint)], known[IDOf(g.RecloseTaint)] = true, true
		}
	}
	return slices.ContainsFunc(d.Node.Taints, func(t corev1.Taint) bool {
		id := TaintID{t.Key, t.Effect}
		return !known[id] && (d.Allowed == nil || d.Allowed[id]) && !strings.HasPrefix(t.Key, v1alpha1.CoreTaintPrefix)
	})
}

// heirs returns the slots of the gates that may take over a record: accepted gates that
// select the node and have no record of their own.
func (d *decider) heirs() (heirs []*slot) {
	for i := range d.slots {
		s := &d.slots[i]
		if s.gate != nil && s.gate.Accepted && s.selected && s.before == nil && d.acts(s.gate) {
			heirs = append(heirs, s)
		}
	}
	return heirs
}

// mayInherit reports whether a broken gate may take over a deleted gate's record.
func (d *decider) mayInherit(orphan *slot) bool {
	return orphan.before != nil && slices.ContainsFunc(d.broken, func(g *Gate) bool {
		_, own := g.role(orphan.before)
		return own && d.acts(g)
	})
}

// takeOver gives a deleted gate's record to the first heir with the same taint that has
// not taken over another. The taint stays even if the new gate uses it in the other role
// (taint or recloseTaint). An open record does not open a gate whose taint is on the node:
// the heir then adopts the taint.
func (d *decider) takeOver(orphan *slot, heirs []*slot) {
	for _, s := range heirs {
		if s.before != nil || !orphan.before.tainted() && d.carriesOwn(s.gate) {
			continue
		}
		if reclosed, own := s.gate.role(orphan.before); own {
			if d.frozen(s) { // the gate must not write a record at present
				d.hold(orphan)
				return
			}
			r := *orphan.before
			r.Reclosed = reclosed && r.tainted()
			if r.awaitsBoot() || r.closedForBoot() && !d.hasProved(&r) {
				r.Digest = digestAll // the digest lists the pods of the deleted gate's signals
			}
			s.restore(&r)
			orphan.verdict.Before = "" // this opens nothing
			return
		}
	}
}

// hasProved reports whether the passing of time has proved, for a gate that closed for the current boot,
// which pods are ready in it. What the digest lists no longer matters then.
func (d *decider) hasProved(r *Record) bool {
	proven, _ := provenBy(&d.Node, Latest(r.Since, d.ReadySince), d.podsAt(), d.now)
	return proven && r.Boot == d.Node.BootID
}
