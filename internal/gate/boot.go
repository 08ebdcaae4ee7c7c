// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Boots.
//
// A boot ID identifies a boot. It does not show when the boot began, but the right
// reaction to a reboot depends on that. A node that has just booted is about to start
// its pods, and a gate must close before the scheduler considers the node free. On a
// node that booted yesterday, the pods have been running since, and closing the gate
// would be a surprise. If nodegate was down for that long, it would be one for a whole
// fleet at once.
//
// So the controller watches Nodes for a boot ID that changes (Facts.Boot). For an open
// gate whose record names a boot other than the node's:
//
//	start of the boot       signals   node       the gate
//	observed, recent        any       any        closes immediately (Rebooted)
//	unobserved, or old      NotYet    any        closes under the budget (RebootedUnobserved)
//	unobserved, or old      Unknown   any        stays open and waits
//	unobserved, or old      Holds     Ready for  stays open; its record is updated
//	                                  a minute   to the boot
//	unobserved, or old      Holds     else       stays open and waits
//
// A gate with the effect NoExecute never closes for a boot whose start was not
// observed. Whatever its signals, its record is updated to the boot when the node has
// been Ready for a minute. That proves no heartbeat (Record.BootSeen).

// Boot is what was observed about the start of the node's current boot. The zero value
// means that the node is observed for the first time.
type Boot struct {
	// Seen is the time at which the node was first observed in this boot. Zero means
	// now.
	Seen time.Time
	// After is the previous boot ID, if its change to the current one was observed.
	// Empty if the node was already in this boot when it was first observed, or if the
	// watch was interrupted.
	After string
	// Known contains the pods on the node that were known to be ready when the change
	// was observed, with the containers that they had at that time, and the marks of all
	// pods. If another replica closed the gate, it may have known of other pods. If After
	// is empty, the change was not a reboot: the Node replaced another Node of the same
	// name.
	Known []Incarnation
	// Ahead reports that the boot is known from a response of the API server, and that the
	// watch has not delivered it yet. There may have been boots in between, and statuses that
	// were written in any of them may still be delivered: what is known of pods does not
	// distinguish these boots.
	Ahead bool
}

// bootSeen returns when the node was first observed in its current boot.
func (d *decider) bootSeen() time.Time { return Earliest(d.Boot.Seen, d.now) }

// bootsNow reports whether the start of the node's current boot was observed and is
// recent.
func (d *decider) bootsNow() bool {
	return d.Boot.After != "" && d.now.Before(d.bootSeen().Add(provenAfter))
}

// hasBooted reports whether the record belongs to a boot other than the node's.
func (d *decider) hasBooted(r *Record) bool {
	return r.Boot != "" && d.Node.BootID != "" && r.Boot != d.Node.BootID
}

// rebootedUnobserved handles an open gate on a node whose boot differs from the
// record's, if the start of the boot was not observed or is not recent. It returns the
// reason to close the gate, or "".
func (d *decider) rebootedUnobserved(s *slot) v1alpha1.Reason {
	g, r := s.gate, s.after
	evicts := g.taint(true).Effect == corev1.TaintEffectNoExecute
	d.evaluate(s, r)
	switch {
	case s.signals == NotYet && !evicts:
		return d.closesUnderBudget(s, d.now, v1alpha1.ReasonRebootedUnobserved)
	case s.signals == Holds, evicts:
		if proven, recheck := provenBy(&d.Node, Latest(d.bootSeen(), d.ReadySince), d.podsAt(), d.now); !proven {
			d.recheckAt(recheck)
			return ""
		}
		was := *r
		r.Boot, r.Completed = d.Node.BootID, ""
		d.noteRuns(s, d.inBootOf(g, &was, r))
	}
	return ""
}

// provenFrom returns the time from which pods that are ready count as ready in the
// current boot, if only the passing of time can prove it. The boot is known, and the node
// was observed to be Ready, since the given time. The Ready condition has a time by the
// node's clock; the later time counts. The result is zero while time proves nothing. See
// provenAfter.
func provenFrom(n *Node, known time.Time) time.Time {
	liveness, since := n.Liveness()
	if liveness != Ready {
		return time.Time{}
	}
	return Latest(known, since).Add(provenAfter)
}

// podsRecheck is how soon a decision is repeated that waits for up-to-date information
// about the node's pods.
const podsRecheck = 5 * time.Second

// provenBy reports whether pods that were ready at the time podsAt are proved to be
// ready in the current boot, given the same time as provenFrom. If they are not, it also
// returns when to check again; zero means that the passing of time does not change the
// result.
func provenBy(n *Node, known, podsAt, now time.Time) (bool, time.Time) {
	switch proven := provenFrom(n, known); {
	case proven.IsZero(), now.Before(proven):
		return false, proven
	case podsAt.Before(proven):
		return false, now.Add(podsRecheck)
	default:
		return true, proven
	}
}

// podsAt returns the latest time at which the known pods of the node were certainly
// correct.
func (d *decider) podsAt() time.Time { return Earliest(d.PodsAt, d.now) }

// closedForBoot reports whether the gate closed because of a new boot.
func (r *Record) closedForBoot() bool {
	return r.Reason == v1alpha1.ReasonRebooted || r.Reason == v1alpha1.ReasonRebootedUnobserved
}
