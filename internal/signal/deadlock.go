// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// Deadlock is a deadlock between two gates on a node on which both are closed.
type Deadlock struct {
	// With is the name of the other gate.
	With string
	// Daemon is a DaemonSet that this gate waits for and that does not tolerate the
	// other gate's taint. Other is a DaemonSet that the other gate waits for and that
	// does not tolerate this gate's taint.
	Daemon, Other string
}

// Deadlocks returns the deadlocks of each gate, by name: each of two gates waits for a
// daemon that does not tolerate the other's taint, so that neither opens on a node that
// is new to both. If only one gate waits for the other in this way, there is no
// deadlock, because the other opens first. Gates on different nodes are not in a deadlock
// (see gate.Apart). nodes are the labels of the existing nodes; nil if they do not count.
func Deadlocks(gates []gate.Gate, sets *gate.DaemonSets, nodes iter.Seq[labels.Set]) map[string][]Deadlock {
	var found map[string][]Deadlock
	for i := range gates {
		for j := i + 1; j < len(gates); j++ {
			a, b := &gates[i], &gates[j]
			daemon, waits := keptAway(a, b, sets)
			if !waits {
				continue
			}
			other, mutual := keptAway(b, a, sets)
			if !mutual || gate.Apart(a.Selector, b.Selector, nodes) {
				continue
			}
			if found == nil {
				found = make(map[string][]Deadlock)
			}
			found[a.Name] = append(found[a.Name], Deadlock{With: b.Name, Daemon: daemon, Other: other})
			found[b.Name] = append(found[b.Name], Deadlock{With: a.Name, Daemon: other, Other: daemon})
		}
	}
	return found
}

// keptAway returns a DaemonSet that a gate waits for and that does not tolerate a taint
// of another gate. A taint that both gates have counts as the gate's own.
func keptAway(g, by *gate.Gate, sets *gate.DaemonSets) (string, bool) {
	if !mayWait(g) || !mayWait(by) {
		return "", false
	}
	for _, t := range by.Taints() {
		if slices.Contains(g.Taints(), t) {
			continue
		}
		taint := t.Core()
		for _, s := range g.Signals {
			if daemon, away := awayFrom(taint, s.Signal, sets); away {
				return daemon, true
			}
		}
	}
	return "", false
}

// mayWait reports whether a gate keeps nodes closed until a daemon is ready.
func mayWait(g *gate.Gate) bool {
	return g.Accepted && !g.CloseWhen && g.Mode != v1alpha1.ModeDryRun
}

// awayFrom returns a DaemonSet that the signal requires and that does not run on a node
// with the taint.
func awayFrom(taint corev1.Taint, s gate.Signal, sets *gate.DaemonSets) (daemon string, away bool) {
	switch s := s.(type) {
	case daemonSet:
		if ds := s.find(sets); ds != nil && !tolerates(ds, taint) {
			return ds.String(), true
		}
	case daemonSets:
		if sets == nil {
			return "", false
		}
		for _, ds := range s.selected(sets) {
			if !tolerates(ds, taint) {
				return ds.String(), true
			}
		}
	case anyOf: // only if it is true of every alternative
		for i := range s {
			one, is := awayFrom(taint, s[i].Signal, sets)
			if !is {
				return "", false
			}
			if i == 0 {
				daemon, away = one, true
			}
		}
	}
	return daemon, away
}
