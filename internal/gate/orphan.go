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
// renaming a gate does not open it; otherwise, the record is removed.
func (d *decider) settleOrphans() {
	for i := range d.slots {
		s := &d.slots[i]
		switch {
		case s.gate != nil:
		case s.before != nil && !d.DeletedGates[s.name] && !d.CompleteSources[cmp.Or(s.before.Source, v1alpha1.SourceCRD)]:
			s.hold()
		case d.frozen(s), s.garbled && slices.ContainsFunc(d.Node.Taints, d.mayBeOrphaned):
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

// mayBeOrphaned reports whether a taint may belong to a gate that no longer exists:
// nodegate may have added it, and no known gate accounts for it. While such a taint
// exists, an unreadable record is kept, because it is the only trace of the taint's
// origin. It is removed when the taint is gone.
func (d *decider) mayBeOrphaned(t corev1.Taint) bool {
	if d.Allowed != nil && !d.Allowed[TaintID{t.Key, t.Effect}] || strings.HasPrefix(t.Key, v1alpha1.CoreTaintPrefix) {
		return false
	}
	return !slices.ContainsFunc(d.slots, func(s slot) bool {
		g := s.gate
		return s.accounts(t) || g != nil && g.Accepted && s.selected && d.acts(g) && g.owns(t.Key, t.Effect)
	})
}

// takeOver gives a deleted gate's record to the first accepted gate that selects the
// node, has the same taint, and has no record of its own. The taint stays even if the
// new gate uses it in the other role (taint or recloseTaint).
func (d *decider) takeOver(orphan *slot) {
	for i := range d.slots {
		s := &d.slots[i]
		if s.gate == nil || !s.gate.Accepted || !s.selected || s.before != nil || !d.acts(s.gate) {
			continue
		}
		if reclosed, own := s.gate.role(orphan.before); own {
			if d.frozen(s) { // the gate must not write a record at present
				orphan.hold()
				return
			}
			r := *orphan.before
			r.Reclosed = reclosed && r.tainted()
			if r.awaitsBoot() || r.closedForBoot() && d.now.Before(r.Since.Add(provenAfter)) {
				r.Digest = digestAll // the digest lists the pods of the deleted gate's signals
			}
			s.restore(&r)
			orphan.verdict.Before = "" // this opens nothing
			return
		}
	}
}
