// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// settleOrphans deals with records whose gate is not known. If their source is
// complete, the gate was deleted: another gate with the same taint takes the
// record over (so that renaming a gate opens nothing), or it is dropped.
func (d *decider) settleOrphans() {
	for i := range d.slots {
		s := &d.slots[i]
		switch {
		case s.gate != nil:
		case s.before != nil && !d.DeletedGates[s.name] && !d.CompleteSources[cmp.Or(s.before.Source, v1alpha1.SourceCRD)]:
			s.hold()
		case d.frozen(s), s.garbled && slices.ContainsFunc(d.Node.Taints, d.isNobodys):
			s.hold()
		default:
			s.verdict.Reason = v1alpha1.ReasonGateDeleted
			if s.before != nil {
				d.takeOver(s)
				s.verdict.ClosedSince = s.before.taintedSince(&d.Node)
			}
		}
	}
}

// isNobodys tells whether a taint may have been put there by a gate that nobody
// knows any more: nodegate may have, and no known gate will see to it. A garbled
// record is kept beside it, and goes when somebody has taken the taint off: it is
// all that tells of where the taint may be from.
func (d *decider) isNobodys(t corev1.Taint) bool {
	if d.Allowed != nil && !d.Allowed[TaintID{t.Key, t.Effect}] || strings.HasPrefix(t.Key, v1alpha1.CoreTaintPrefix) {
		return false
	}
	return !slices.ContainsFunc(d.slots, func(s slot) bool {
		g := s.gate
		return s.accounts(t) || g != nil && g.Accepted && s.selected && d.acts(g) && g.owns(t.Key, t.Effect)
	})
}

// takeOver hands a deleted gate's record to the first accepted gate that
// selects the node, has the same taint, and has no record of its own. Where the
// taint has another role in that gate, it stays what it is.
func (d *decider) takeOver(orphan *slot) {
	for i := range d.slots {
		s := &d.slots[i]
		if s.gate == nil || !s.gate.Accepted || !s.selected || s.before != nil || !d.acts(s.gate) {
			continue
		}
		if reclosed, own := s.gate.role(orphan.before); own {
			if d.frozen(s) { // it may not write a record at present
				orphan.hold()
				return
			}
			r := *orphan.before
			r.Reclosed = reclosed && r.tainted()
			if r.awaitsBoot() || r.Reason == v1alpha1.ReasonRebooted && d.now.Before(r.Since.Add(provenAfter)) {
				r.Digest = digestAll // it names the pods of the deleted gate's signals
			}
			s.restore(&r)
			orphan.verdict.Before = "" // nothing opens by this
			return
		}
	}
}
