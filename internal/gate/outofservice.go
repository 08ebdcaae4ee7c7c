// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Out of service.
//
// From a node with the taint node.kubernetes.io/out-of-service, Kubernetes detaches
// every volume that no pod on the node needs any longer, whether it is mounted or not.
// The attach-detach controller does not check whether the node is alive, so a wrong
// taint causes two machines to write to the same disk. A gate with this key therefore
// needs more than signals. The signals arm the gate, and the node's unreachability
// triggers it: the gate closes only while Ready is Unknown, which is neither True nor
// False, and opens as soon as Ready is anything else, regardless of the signals. See
// docs/decisions/0009.

// goneAfter is how long a node must have been unreachable before it is presumed gone:
// one minute, plus one second because the API truncates times to seconds.
const goneAfter = time.Minute + time.Second

// detaches reports whether closing the gate detaches volumes. Only closeWhen gates,
// which have a single taint, can do so.
func (g *Gate) detaches() bool { return g.Taint.Key == v1alpha1.TaintOutOfService }

// presumeGone adjusts the combined state of a gate's signals if the gate detaches
// volumes. On a node that is reporting, they do not hold. On an unreachable node, they
// hold once the node is presumed gone; until then, they are unknown.
func (d *decider) presumeGone(g *Gate, all State) State {
	switch {
	case !g.detaches():
		return all
	case !d.Node.Silent():
		return NotYet
	case all != Holds, d.Node.hasShutdownTaint():
		return all
	}
	// The time comes from the API, so that a restart of the controller neither shortens nor extends
	// the wait. If the controller has observed how the node became unreachable, the wait is not
	// shorter than by its own clock either, whichever of the clocks is wrong.
	ready, _ := d.Node.Condition(string(corev1.NodeReady))
	due := Latest(ready.Transition, d.SilentSince).Add(goneAfter)
	switch {
	case ready.Transition.IsZero(), d.Zone.Partitioned():
		return Unknown
	case d.now.Before(due):
		d.recheckAt(due)
		return Unknown
	}
	return Holds
}

// hasShutdownTaint reports whether the cloud controller has marked the node's machine as shut
// down.
func (n *Node) hasShutdownTaint() bool {
	return slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintCloudShutdown })
}

// spares reports whether a taint that no gate accounts for is kept. On an unreachable
// node, the writer that added it may have information that the signals do not have.
// When the node is reporting again, the taint is removed, as Kubernetes requires.
func (d *decider) spares(g *Gate) bool { return g.detaches() && d.Node.Silent() }

// mustStartOver reports whether a record of a closed gate with this key must be
// ignored: the gate was closed with another key before it was edited, or its taint was
// removed, possibly because the node had returned and has become unreachable again
// since.
func (d *decider) mustStartOver(s *slot, all State) bool {
	if !s.gate.detaches() || s.mask == v1alpha1.StateOpen {
		return false
	}
	return s.had.Key != s.gate.Taint.Key || all == Unknown && !d.carries(s.had)
}

// startOver handles such a gate as if it were open.
func (d *decider) startOver(s *slot, all State) {
	closed := s.before
	s.before = nil
	d.followOpen(s, all)
	if s.verdict.Before = closed.State; s.after == nil {
		s.verdict.ClosedSince, s.verdict.Reason = closed.closedSince(&d.Node), v1alpha1.ReasonSignalsCleared
		if s.had.Key == s.gate.Taint.Key {
			s.verdict.Reason = v1alpha1.ReasonOpenedByHand
		}
	}
}

// openReturned opens a gate that detaches volumes on a node that is reporting, if
// following its signals has not done so. It applies even if it is unknown whether the
// gate still exists or which nodes it selects, or if the gate has another key now. The
// taint stays only if it must not be changed.
func (d *decider) openReturned(s *slot) {
	if s.after == nil || !s.after.tainted() || d.Node.Silent() {
		return
	}
	if put := s.after.RecordedTaint(); put.Key != v1alpha1.TaintOutOfService || !d.Allowed.Allows(put) {
		return
	}
	v := s.verdict
	*v = Verdict{Gate: v.Gate, Selected: v.Selected, Before: v.Before, Readings: v.Readings,
		Reason: v1alpha1.ReasonNodeReturned, ClosedSince: s.after.closedSince(&d.Node)}
	s.after, s.keep, s.leave = nil, false, false
}

// refusedToDetach returns why a gate that would detach volumes is not in force, or "".
func (g *Gate) refusedToDetach() string {
	switch {
	case !g.detaches():
	case !g.CloseWhen:
		return "only a closeWhen gate can have the taint key " + v1alpha1.TaintOutOfService + ": use closeWhen, or another key"
	case !g.MayDetach:
		return "the taint key " + v1alpha1.TaintOutOfService + " detaches volumes: add VolumeDetach to acknowledge, or use another key"
	case g.Manual:
		return "reopen must not be Manual with the taint key " + v1alpha1.TaintOutOfService + ", which is removed as soon as the node is reporting again: remove reopen"
	}
	return ""
}
