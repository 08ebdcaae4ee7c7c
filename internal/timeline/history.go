// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"slices"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Doubt is the reason why a time is unknown or may not be the first one.
type Doubt string

const (
	// Pending means that the event has not happened, or that its state is not current.
	Pending Doubt = "Pending"
	// Untold means that the API does not report the time of the event.
	Untold Doubt = "Untold"
	// AfterOpening means that the time is after the gate opened: the signal held before
	// and stopped holding meanwhile, or the gate did not wait for it.
	AfterOpening Doubt = "AfterOpening"
	// Lost means that the signal held when the gate opened, and does not hold now.
	Lost Doubt = "Lost"
	// BeforeNode means that the time is before the Node's creation: clocks differ, or the
	// time belongs to a former Node of the same name.
	BeforeNode Doubt = "BeforeNode"
	// Again means that the node was in use before, so this is not the first event.
	Again Doubt = "Again"
	// Joined means that the gate was already open when the node became a member.
	Joined Doubt = "Joined"
	// NoGate means that no gate is known to have held the node at its creation: none applies
	// to it, or only gates with closeWhen or the effect PreferNoSchedule do.
	NoGate Doubt = "NoGate"
	// Older means that the node is older than the gate, which therefore did not close at the
	// node's creation.
	Older Doubt = "Older"
	// Adopted means that the node already carried the taint when it became a member. The
	// time is that of the adoption.
	Adopted Doubt = "Adopted"
	// Unread means that the source of the time was not read.
	Unread Doubt = "Unread"
)

// Moment is the time of an event.
type Moment struct {
	// At is the time that the API reports. Zero if it reports none.
	At time.Time `json:"at,omitzero"`
	// Doubt is the reason why At is not the time of the event. Empty if it is.
	Doubt Doubt `json:"doubt,omitempty"`
}

// Known reports whether the time of the event is known.
func (m Moment) Known() bool { return m.Doubt == "" && !m.At.IsZero() }

// After returns the duration from t to the moment. The second result is false if the
// moment is unknown. If the moment is before t because clocks differ, the duration is 0.
func (m Moment) After(t time.Time) (time.Duration, bool) {
	if !m.Known() {
		return 0, false
	}
	return max(m.At.Sub(t), 0), true
}

// Timeline is the output of 'kubectl gate timeline' with -o json and -o yaml. Fields may be
// added, but are neither renamed nor changed in meaning.
type Timeline struct {
	// Time is the time of the read.
	Time time.Time `json:"time"`
	History
	// Unread lists the read errors. What could not be read is unknown.
	Unread []string `json:"unread,omitempty"`
}

// History is a node's history from its creation to its first workload.
type History struct {
	// Node is the name of the node.
	Node string `json:"node"`
	// Created is the creation time of the Node.
	Created time.Time `json:"created"`
	// Ready is when the Ready condition became True.
	Ready Moment `json:"ready"`
	// Gates are the gates that have a record on the node, and closeWhen gates that are
	// closed on it, sorted by name.
	Gates []Gate `json:"gates"`
	// Held is true if a gate holds the node.
	Held bool `json:"held"`
	// Opened is when all gates that were closed at the node's creation had opened.
	Opened Moment `json:"opened"`
	// FirstPod is the first workload pod that was bound to the node after that and still
	// exists. Nil if there is none or if pods were not read.
	FirstPod *Pod `json:"firstPod,omitempty"`
	// PodsRead is true if pods were read.
	PodsRead bool `json:"podsRead"`
}

// Gate is the history of a gate on the node.
type Gate struct {
	// Gate is the name of the gate.
	Gate string `json:"gate"`
	// Unknown is true if the NodeGate does not exist and only a record on the node remains.
	Unknown bool `json:"unknown,omitempty"`
	// State is Closed or Open.
	State string `json:"state"`
	// Reason is the reason for the gate's state.
	Reason v1alpha1.Reason `json:"reason,omitempty"`
	// CloseWhen is true if the gate is closed while its signals hold.
	CloseWhen bool `json:"closeWhen,omitempty"`
	// Soft is true if the gate's taint has the effect PreferNoSchedule.
	Soft bool `json:"soft,omitempty"`
	// Overridden is true if a manual override determines the state.
	Overridden bool `json:"overridden,omitempty"`
	// Overdue is true if the closed gate has passed its deadline.
	Overdue bool `json:"overdue,omitempty"`
	// Blocked is the reason why no signal can open the closed gate at present.
	Blocked string `json:"blocked,omitempty"`
	// IgnoresSignals is true if the gate's state does not depend on its signals: the gate is
	// paused, or a manual override determines its state.
	IgnoresSignals bool `json:"-"`
	// Opens is true if nothing keeps the closed gate closed: the controller is about to open it.
	Opens bool `json:"-"`
	// Closed is when the gate closed. For an open gate this is not recorded: it is the
	// Node's creation if the gate is older than the node and has opened once, the adoption
	// if an override opened an adopted taint's gate, and unknown otherwise.
	Closed Moment `json:"closed"`
	// Opened is when the gate last opened.
	Opened Moment `json:"opened"`
	// Signals are the gate's signals in the order of its spec.
	Signals []Signal `json:"signals,omitempty"`
}

// Signal is the history of a signal of a gate.
type Signal struct {
	Name string `json:"name"`
	// State is the current state: Holds, NotYet or Unknown.
	State string `json:"state"`
	// Message is a human-readable explanation of the state.
	Message string `json:"message"`
	// Held is when the signal started to hold.
	Held Moment `json:"held"`
	// Pod is the pod that the signal depends on. Nil if it does not depend on pods.
	Pod *Pod `json:"pod,omitempty"`
}

// Pod is the history of a pod on the node. Times are zero if the API does not report them.
type Pod struct {
	// Name is the pod's namespace and name, as namespace/name.
	Name string `json:"name"`
	// Created is when the pod was created, and Bound when it was bound to the node.
	Created time.Time `json:"created,omitzero"`
	Bound   time.Time `json:"bound,omitzero"`
	// Started is when the last of its containers started, by the node's clock.
	Started time.Time `json:"started,omitzero"`
	// Ready is when it became ready, by the node's clock.
	Ready time.Time `json:"ready,omitzero"`
}

// HeldSince returns the time since which a gate has held the node. It is zero if no gate
// does, or if the time is unknown.
func (l *History) HeldSince() time.Time {
	var since time.Time
	for i := range l.Gates {
		if g := &l.Gates[i]; g.Holds() && g.Closed.Known() {
			since = gate.Earliest(since, g.Closed.At)
		}
	}
	return since
}

// HeldSinceCreation reports whether one of the gates that hold the node has held it since
// its creation.
func (l *History) HeldSinceCreation() bool {
	return slices.ContainsFunc(l.Gates, func(g Gate) bool {
		return g.Holds() && g.Reason == v1alpha1.ReasonBirth
	})
}

// Holds reports whether the gate keeps pods off the node. A gate with the effect
// PreferNoSchedule does not.
func (g *Gate) Holds() bool { return g.State == v1alpha1.StateClosed && !g.Soft }

// Awaited returns the indexes of the signals that the closed gate waits for, in the order of the
// spec.
func (g *Gate) Awaited() []int {
	return g.signals(func(s *Signal, awaited bool) bool { return awaited && s.Held.Doubt != Unread })
}

// MayAwait returns the indexes of the signals that the closed gate may wait for: something could not
// be read.
func (g *Gate) MayAwait() []int {
	return g.signals(func(s *Signal, _ bool) bool { return s.Held.Doubt == Unread })
}

// signals returns the indexes of the wanted signals if the state of the gate is closed and depends on
// them. awaited reports whether the gate waits for a signal in its state.
func (g *Gate) signals(wanted func(s *Signal, awaited bool) bool) (signals []int) {
	if g.State != v1alpha1.StateClosed || g.IgnoresSignals {
		return nil
	}
	all := gate.Holds
	for i := range g.Signals {
		all = all.And(gate.ParseState(g.Signals[i].State))
	}
	for i := range g.Signals {
		s := &g.Signals[i]
		if wanted(s, gate.ParseState(s.State).IsAwaited(g.CloseWhen, all)) {
			signals = append(signals, i)
		}
	}
	return signals
}

// Last returns the index of the signal that held last before the gate opened, and for how
// long the gate waited for this signal alone: after all other signals held, after the
// node's creation and, if known, after the node became ready. The index is -1 if the time
// of a signal is unknown.
func (g *Gate) Last(l *History) (last int, alone time.Duration) {
	last = -1
	before := l.Created
	if l.Ready.Known() && l.Ready.At.After(before) {
		before = l.Ready.At
	}
	var at time.Time
	for i := range g.Signals {
		held := g.Signals[i].Held
		switch {
		case !held.Known():
			return -1, 0
		case last < 0:
			last, at = i, held.At
		case held.At.After(at):
			before, last, at = gate.Latest(before, at), i, held.At
		default:
			before = gate.Latest(before, held.At)
		}
	}
	return last, max(at.Sub(before), 0)
}
