// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Gate is a compiled NodeGate.
type Gate struct {
	// Name is the NodeGate's name.
	Name string
	// Source is where the gate was declared.
	Source string
	// Created is when the gate was declared.
	Created time.Time
	// Accepted gates close. Others put no taint on a node, not even back, and keep
	// what they closed under control: it opens by their signals.
	Accepted bool
	// Mode says whether the gate acts; empty is Enforce. Gates in DryRun are decided
	// about, and nothing comes of it. Paused ones stay as they are.
	Mode v1alpha1.Mode
	// Broken gates could not be read so far as to tell which nodes they select:
	// everything that concerns them stays as it is.
	Broken bool
	// Selector selects the gate's nodes.
	Selector labels.Selector
	// Taint is what a closed gate puts on a node: at birth, and until it has opened
	// there.
	Taint v1alpha1.Taint
	// RecloseTaint is the same for a node on which the gate had been open, or that
	// was there before it. Zero where that is Taint too.
	RecloseTaint v1alpha1.Taint
	// Reclose says when the gate closes again.
	Reclose v1alpha1.ReclosePolicy
	// Existing says what happens to nodes that are not new.
	Existing v1alpha1.ExistingNodes
	// CloseAfter is how long a signal must have stopped holding before an
	// OnRegression gate closes.
	CloseAfter time.Duration
	// RolloutGrace is the same for a daemon that its own rollout replaces.
	RolloutGrace time.Duration
	// MinClosed is how long the gate stays closed at least.
	MinClosed time.Duration
	// OpenAfter is how long the signals of a closed gate must have said what opens
	// it.
	OpenAfter time.Duration
	// Deadline bounds how long the gate waits on a node. Not for CloseWhen gates.
	Deadline Deadline
	// Stamp is the key of the node annotation that tells when the gate opened;
	// empty for none.
	Stamp string
	// CloseWhen gates follow their signals: closed while all hold, on every node
	// that they select. Reclose, Existing, CloseAfter and RolloutGrace are not
	// for them.
	CloseWhen bool
	// Manual CloseWhen gates open only when somebody takes their taint away.
	Manual bool
	// MayDetach tells whether the gate's author accepts that volumes are detached.
	MayDetach bool
	// Signals must all hold for the gate to open or, if it is CloseWhen, to close.
	Signals []NamedSignal
}

// NamedSignal is a signal under the name that its gate gives it.
type NamedSignal struct {
	Name string
	Signal
}

// newFor is how long after its creation a node counts as new to a gate.
const newFor = 10 * time.Minute

// isNew tells whether a node that has no record of the gate was born into it.
func (g *Gate) isNew(n *Node, now time.Time) bool {
	return !n.Created.Before(g.Created) && now.Sub(n.Created) <= newFor
}

// taint is what the gate puts on a node that is new to it, or on one that is not.
func (g *Gate) taint(reclosed bool) v1alpha1.Taint {
	if reclosed && g.RecloseTaint.Key != "" {
		return g.RecloseTaint
	}
	return g.Taint
}

// Taints are all that the gate may put on a node.
func (g *Gate) Taints() []v1alpha1.Taint {
	if g.RecloseTaint.Key == "" {
		return []v1alpha1.Taint{g.Taint}
	}
	return []v1alpha1.Taint{g.Taint, g.RecloseTaint}
}

// owns tells whether a taint with this key and effect is the gate's: no other
// writer is to put it there or to take it away.
func (g *Gate) owns(key string, effect corev1.TaintEffect) bool {
	return g.Taint.Key == key && g.Taint.Effect == effect ||
		g.RecloseTaint.Key == key && g.RecloseTaint.Effect == effect
}

// role tells whether the taint that a record tells of is the gate's and, if so,
// whether it is to stay as what the gate puts there when it recloses.
func (g *Gate) role(r *Record) (reclosed, own bool) {
	for _, reclosed := range []bool{r.Reclosed, !r.Reclosed} {
		if r.Taint == TaintText(g.taint(reclosed)) {
			return reclosed, true
		}
	}
	return false, false
}

// recloses tells whether the gate, having opened, may close for a reboot.
func (g *Gate) recloses() bool { return !g.CloseWhen && g.Reclose != v1alpha1.RecloseNever }

// ProvesBoot tells whether one of the gate's signals can tell the node's
// current boot from an earlier one.
func (g *Gate) ProvesBoot() bool {
	for _, s := range g.Signals {
		if s.ProvesBoot() {
			return true
		}
	}
	return false
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
