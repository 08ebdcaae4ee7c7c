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
// From a node with the taint node.kubernetes.io/out-of-service Kubernetes
// detaches every volume that no pod needs there any more, mounted or not, and
// the attach-detach controller does not ask whether the node is alive: a wrong
// taint has two machines write to one disk. So a gate with this key needs more
// than signals. They arm it, and the node's silence fires it: it closes only
// while Ready is Unknown, which is neither True nor False, and opens the moment
// it is not, whatever the signals say. See docs/decisions/0009.

// goneAfter is how long a node must have been silent to be taken for gone: a
// minute, and the second that the API's times may be early, being cut to seconds.
const goneAfter = time.Minute + time.Second

// detaches tells whether closing the gate has volumes detached. It is for closeWhen
// gates only, which have one taint.
func (g *Gate) detaches() bool { return g.Taint.Key == v1alpha1.TaintOutOfService }

// presumeGone says what a gate's signals come to, given that they come to all. If
// the gate detaches volumes, they do not hold on a node that speaks, and on a
// silent one they hold once it can be taken for gone; until then it is not known.
func (d *decider) presumeGone(g *Gate, all State) State {
	switch {
	case !g.detaches():
		return all
	case !d.Node.Silent():
		return NotYet
	case all != Holds, d.Node.saidToBeOff():
		return all
	}
	// The API's time, so that a restart of ours neither shortens nor prolongs the
	// wait. Where its clock is ahead of ours the wait is longer, never shorter.
	ready, _ := d.Node.Condition(string(corev1.NodeReady))
	due := ready.Transition.Add(goneAfter)
	switch {
	case ready.Transition.IsZero(), d.Zone.Partitioned():
		return Unknown
	case d.now.Before(due):
		d.recheckAt(due)
		return Unknown
	}
	return Holds
}

// saidToBeOff tells whether the node's cloud says that its machine is shut down.
func (n *Node) saidToBeOff() bool {
	return slices.ContainsFunc(n.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.TaintCloudShutdown })
}

// spares tells whether a taint that no gate accounts for is left alone: on a
// silent node whoever put it there may know what no signal tells. Once the node
// speaks it goes, as Kubernetes asks people to see to themselves.
func (d *decider) spares(g *Gate) bool { return g.detaches() && d.Node.Silent() }

// mustStartOver tells whether it proves nothing that a gate with this key is
// closed: it closed with another key, before it was edited, or its taint was taken
// away, perhaps because the node had returned, and this silence is a new one.
func (d *decider) mustStartOver(s *slot, all State) bool {
	if !s.gate.detaches() || s.mask == v1alpha1.StateOpen {
		return false
	}
	return s.had.Key != s.gate.Taint.Key || all == Unknown && !d.carries(s.had)
}

// startOver decides about such a gate as if it were open.
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

// release opens what detaches volumes of a node that speaks, where following
// signals has not done so: also where it is not known whether the gate still
// exists, or which nodes it selects, or where its key is another one by now. Only
// while the taint itself may not be touched, it stays.
func (d *decider) release(s *slot) {
	if s.after == nil || !s.after.tainted() || d.Node.Silent() {
		return
	}
	if put := s.after.Put(); put.Key != v1alpha1.TaintOutOfService || !d.Allowed.Allows(put) {
		return
	}
	v := s.verdict
	*v = Verdict{Gate: v.Gate, Selected: v.Selected, Before: v.Before, Readings: v.Readings,
		Reason: v1alpha1.ReasonNodeReturned, ClosedSince: s.after.closedSince(&d.Node)}
	s.after, s.keep, s.leave = nil, false, false
}

// refusedToDetach says why a gate that would detach volumes is not in force, or
// nothing.
func (g *Gate) refusedToDetach() string {
	switch {
	case !g.detaches():
	case !g.CloseWhen:
		return "only a closeWhen gate can have the taint key " + v1alpha1.TaintOutOfService + ": use closeWhen, or another key"
	case !g.MayDetach:
		return "the taint key " + v1alpha1.TaintOutOfService + " detaches volumes: add VolumeDetach to acknowledge, or use another key"
	case g.Manual:
		return "the taint " + v1alpha1.TaintOutOfService + " goes as soon as the node speaks again and waits for nobody: remove reopen"
	}
	return ""
}
