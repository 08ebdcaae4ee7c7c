// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Gate is a compiled NodeGate.
type Gate struct {
	// Name is the NodeGate's name.
	Name string
	// Source is where the gate was declared: SourceCRD or SourceFiles.
	Source string
	// Created is the time at which the gate was declared.
	Created time.Time
	// Accepted is true if the gate is in force. A gate that is not accepted never adds
	// a taint, not even one that another writer removed. Nodes that it closed stay
	// under its control and open by its signals.
	Accepted bool
	// Mode specifies whether the gate acts; empty means Enforce. A gate in DryRun is
	// evaluated without effect. A paused gate keeps its state.
	Mode v1alpha1.Mode
	// Broken is true if the gate's selector could not be read, so that it is unknown
	// which nodes it selects. Everything that concerns the gate keeps its state.
	Broken bool
	// Selector selects the gate's nodes, except those that have opted out.
	Selector labels.Selector
	// PlainOptOut reports whether the opt-out label that kubelets can set excludes a
	// node.
	PlainOptOut bool
	// Taint is the taint that the closed gate adds to a new node, until the gate first
	// opens there.
	Taint v1alpha1.Taint
	// RecloseTaint is the taint for a node that is not new: the gate was open on it, or
	// it existed before the gate. Zero if it is the same as Taint.
	RecloseTaint v1alpha1.Taint
	// Reclose specifies when the gate closes again.
	Reclose v1alpha1.ReclosePolicy
	// Existing specifies what happens to nodes that are not new.
	Existing v1alpha1.ExistingNodes
	// CloseAfter is how long a signal must not have held before an OnRegression gate
	// closes.
	CloseAfter time.Duration
	// RolloutGrace is CloseAfter for a daemon that is being replaced by its own
	// rollout.
	RolloutGrace time.Duration
	// MinClosed is how long the gate stays closed at a minimum.
	MinClosed time.Duration
	// OpenAfter is how long the signals of a closed gate must have been in the state
	// that opens it.
	OpenAfter time.Duration
	// Deadline limits how long the gate waits on a node. Unused by CloseWhen gates.
	Deadline Deadline
	// Stamp is the key of the node annotation that records when the gate opened. Empty
	// for none.
	Stamp string
	// CloseWhen is true for a gate that follows its signals: it is closed while all of
	// them hold, on every node that it selects. Such a gate ignores Reclose, Existing,
	// CloseAfter and RolloutGrace.
	CloseWhen bool
	// Manual is true for a CloseWhen gate that opens only when a user removes its
	// taint.
	Manual bool
	// MayDetach reports whether the gate's author accepts that volumes are detached.
	MayDetach bool
	// Together is set if the gate opens on the nodes of a group at once; nil otherwise.
	// Unused by CloseWhen gates.
	Together *Together
	// ReadsWrites is true if a signal reads something that gates write: taints or
	// annotations.
	ReadsWrites bool
	// Remembers is true if a signal is Remembering, itself or within another one.
	Remembers bool
	// ReadsHeartbeats is true if a signal reads heartbeats.
	ReadsHeartbeats bool
	// Edited is when the gate's signals were observed to change, also because the gate was created
	// again. Zero if that was not observed.
	Edited time.Time
	// Signals are the signals that must all hold for the gate to open or, if CloseWhen
	// is set, to close.
	Signals []NamedSignal
}

// NamedSignal is a signal with the name that its gate gives it.
type NamedSignal struct {
	Name string
	Signal
}

// Selects reports whether the gate applies to a node with these labels. A broken gate
// applies to no node.
func (g *Gate) Selects(l labels.Set) bool {
	return !g.Broken && g.Selector.Matches(l) && OptOut(l, g.PlainOptOut) == ""
}

// OptOut returns the label that excludes a node from all gates, or "". plain specifies
// whether the label that kubelets can set is effective.
func OptOut(l labels.Set, plain bool) string {
	switch {
	case l[v1alpha1.OptOutLabel] == v1alpha1.OptOutValue:
		return v1alpha1.OptOutLabel
	case plain && l[v1alpha1.PlainOptOutLabel] == v1alpha1.OptOutValue:
		return v1alpha1.PlainOptOutLabel
	}
	return ""
}

// newFor is how long a node counts as new to a gate after its creation.
const newFor = 10 * time.Minute

// isNew reports whether a node without a record of the gate is new to it.
func (g *Gate) isNew(n *Node, now time.Time) bool {
	return !n.Created.Before(g.Created) && now.Sub(n.Created) <= newFor
}

// taint returns the taint for a node that is new to the gate or, if reclosed is true,
// for one that is not.
func (g *Gate) taint(reclosed bool) v1alpha1.Taint {
	if reclosed && g.RecloseTaint.Key != "" {
		return g.RecloseTaint
	}
	return g.Taint
}

// TaintInUse returns the taint that the gate adds when it closes on a node in use.
func (g *Gate) TaintInUse() v1alpha1.Taint { return g.taint(true) }

// Taints returns all taints that the gate may add to a node.
func (g *Gate) Taints() []v1alpha1.Taint {
	if g.RecloseTaint.Key == "" {
		return []v1alpha1.Taint{g.Taint}
	}
	return []v1alpha1.Taint{g.Taint, g.RecloseTaint}
}

// owns reports whether a taint with this key and effect belongs to the gate. No other
// writer should add or remove it.
func (g *Gate) owns(key string, effect corev1.TaintEffect) bool {
	return g.Taint.Key == key && g.Taint.Effect == effect ||
		g.RecloseTaint.Key == key && g.RecloseTaint.Effect == effect
}

// role reports whether the record's taint belongs to the gate (own) and, if so, whether
// it is the one that the gate uses when it recloses (reclosed).
func (g *Gate) role(r *Record) (reclosed, own bool) {
	for _, reclosed := range []bool{r.Reclosed, !r.Reclosed} {
		if r.Taint == TaintText(g.taint(reclosed)) {
			return reclosed, true
		}
	}
	return false, false
}

// recloses reports whether the gate may close for a reboot after it has opened.
func (g *Gate) recloses() bool { return !g.CloseWhen && g.Reclose != v1alpha1.RecloseNever }

// ProvesBoot reports whether one of the gate's signals can distinguish the node's
// current boot from an earlier one.
func (g *Gate) ProvesBoot() bool {
	return slices.ContainsFunc(g.Signals, NamedSignal.ProvesBoot)
}

// Needs returns what must be observed for the gate.
func (g *Gate) Needs(sets *DaemonSets) Needs {
	var all Needs
	if g.Stamp != "" {
		all.Annotations = append(all.Annotations, g.Stamp)
	}
	for _, s := range g.Signals {
		all.Add(s.Needs(sets))
	}
	return all
}
