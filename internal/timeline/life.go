// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Doubt says what a time is not known by, or what keeps it from being the first.
type Doubt string

const (
	// Pending means that it has not come to be so, or is not so now.
	Pending Doubt = "Pending"
	// Untold means that it is so, and that the API does not tell since when.
	Untold Doubt = "Untold"
	// AfterOpening means that the time told is after the gate opened: it was so
	// before and has broken off since, or the gate did not wait for it.
	AfterOpening Doubt = "AfterOpening"
	// Lost means that the gate opened because of it, and that it is not so now.
	Lost Doubt = "Lost"
	// BeforeNode means that the time told is before the Node's creation: clocks
	// differ, or it is of an earlier Node of that name.
	BeforeNode Doubt = "BeforeNode"
	// Again means that the node was in use before the time told: it is not the first.
	Again Doubt = "Again"
	// Joined means that the gate did not open on the node: it joined it open.
	Joined Doubt = "Joined"
	// Unread means that what tells it has not been read.
	Unread Doubt = "Unread"
)

// Moment is when something came to be so.
type Moment struct {
	// At is the time that the API tells, if it tells one.
	At time.Time `json:"at,omitzero"`
	// Doubt is why that is not the answer. Missing where it is.
	Doubt Doubt `json:"doubt,omitempty"`
}

// Known tells whether the moment is known.
func (m Moment) Known() bool { return m.Doubt == "" && !m.At.IsZero() }

// After says how long after a time the moment was. It is false where that is not
// known. A moment that clocks put before the time is not before it.
func (m Moment) After(t time.Time) (time.Duration, bool) {
	if !m.Known() {
		return 0, false
	}
	return max(m.At.Sub(t), 0), true
}

// Life is what is known of a node's way from its creation to its first workload.
type Life struct {
	// Node is the node's name.
	Node string `json:"node"`
	// Created is when the Node was created.
	Created time.Time `json:"created"`
	// Ready is when its Ready condition became True.
	Ready Moment `json:"ready"`
	// Gates are those that have a record on the node or, if they follow their
	// signals, are closed there: by name.
	Gates []Gate `json:"gates"`
	// Held tells whether a gate holds the node.
	Held bool `json:"held"`
	// Opened is when the last of the gates that it was created under opened.
	Opened Moment `json:"opened"`
	// FirstPod is the first pod of a workload that was bound to the node after that
	// and is still there. Missing where there is none, or none was looked for.
	FirstPod *Pod `json:"firstPod,omitempty"`
	// PodsRead tells whether one was looked for.
	PodsRead bool `json:"podsRead"`
}

// Gate is how one gate has stood on the node.
type Gate struct {
	// Gate is the gate's name.
	Gate string `json:"gate"`
	// Unknown tells that there is no such NodeGate, only a record on the node.
	Unknown bool `json:"unknown,omitempty"`
	// State is Closed or Open.
	State string `json:"state"`
	// Reason says why it came into that state.
	Reason v1alpha1.Reason `json:"reason,omitempty"`
	// CloseWhen tells that the gate is closed while its signals hold.
	CloseWhen bool `json:"closeWhen,omitempty"`
	// Soft tells that the closed gate only has pods prefer other nodes.
	Soft bool `json:"soft,omitempty"`
	// Overridden tells that a person has it so for a time.
	Overridden bool `json:"overridden,omitempty"`
	// Overdue tells that the closed gate's deadline has passed.
	Overdue bool `json:"overdue,omitempty"`
	// Blocked says why no signal can open the closed gate at present.
	Blocked string `json:"blocked,omitempty"`
	// Closed is when the gate closed. Of an open gate that is not kept, and is the
	// Node's creation if it opened there for the first time.
	Closed Moment `json:"closed"`
	// Opened is when it opened last.
	Opened Moment `json:"opened"`
	// Signals are the gate's, in its order.
	Signals []Signal `json:"signals,omitempty"`
}

// Signal is one signal of a gate.
type Signal struct {
	Name string `json:"name"`
	// State is what it says now: Holds, NotYet or Unknown.
	State string `json:"state"`
	// Message says so in words.
	Message string `json:"message"`
	// Held is when it began to hold.
	Held Moment `json:"held"`
	// Pod is the pod that made it hold, or does not yet. Missing where the signal
	// looks at none.
	Pod *Pod `json:"pod,omitempty"`
}

// Pod is a pod's way on the node. Times are missing where the API does not tell
// them.
type Pod struct {
	// Name is the pod's namespace and name: namespace/name.
	Name string `json:"name"`
	// Created is when the pod was created, and Bound when it was bound to the node.
	Created time.Time `json:"created,omitzero"`
	Bound   time.Time `json:"bound,omitzero"`
	// Started is when the last of its containers was started, by the node's clock.
	Started time.Time `json:"started,omitzero"`
	// Ready is when it became ready, by the node's clock.
	Ready time.Time `json:"ready,omitzero"`
}

// HeldSince is since when a gate holds the node: the earliest that does. It is zero
// where none does, or the API does not tell.
func (l *Life) HeldSince() time.Time {
	var since time.Time
	for i := range l.Gates {
		g := &l.Gates[i]
		if g.holds() && g.Closed.Known() && (since.IsZero() || g.Closed.At.Before(since)) {
			since = g.Closed.At
		}
	}
	return since
}

// holds tells whether the gate keeps pods off the node.
func (g *Gate) holds() bool { return g.State == v1alpha1.StateClosed && !g.Soft }

// Waits is the index of the signal that the closed gate waits for first, in its
// order, or that keeps it closed. It is -1 where that is none of them.
func (g *Gate) Waits() int {
	if g.State != v1alpha1.StateClosed {
		return -1
	}
	for i := range g.Signals {
		if holds := g.Signals[i].State == gate.Holds.String(); holds == g.CloseWhen {
			return i
		}
	}
	return -1
}

// Last is the index of the signal that the gate waited for longest before it
// opened, and for how long after all others, after the node's creation and, where
// that is known, after it became ready. It is -1 where one of its signals does not
// tell, so that nobody knows which was the last.
func (g *Gate) Last(l *Life) (last int, alone time.Duration) {
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
			before, last, at = later(before, at), i, held.At
		default:
			before = later(before, held.At)
		}
	}
	return last, max(at.Sub(before), 0)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
