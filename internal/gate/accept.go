// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// KeyPolicy says which taint keys and annotations gates may use.
type KeyPolicy struct {
	// Allowed are the keys that the administrator allows; nil allows all.
	Allowed map[string]bool
	// Stamps are the annotations that gates may stamp; nil allows all.
	Stamps map[string]bool
	// Managed names, by key, the NodeReadinessRule that manages the key.
	Managed map[string]string
}

// Acceptance says whether a gate is in force, and why not.
type Acceptance struct {
	Accepted bool
	Reason   string
	Message  string
}

// Accept says which of the gates are in force, by name. A gate yields to an
// older one (or, of the same age, to one whose name sorts first) with the same
// taint key and effect but another value, since a node can carry only one of
// the two.
func Accept(gates []Gate, policy KeyPolicy) map[string]Acceptance {
	byAge := make([]*Gate, len(gates))
	for i := range gates {
		byAge[i] = &gates[i]
	}
	slices.SortFunc(byAge, func(a, b *Gate) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	type slot struct {
		key    string
		effect corev1.TaintEffect
	}
	holders := make(map[slot]*Gate)
	out := make(map[string]Acceptance, len(gates))
	for _, g := range byAge {
		a := policy.accept(g)
		if at := (slot{g.Taint.Key, g.Taint.Effect}); a.Accepted {
			if holder, taken := holders[at]; taken && holder.Taint.Value != g.Taint.Value {
				a = conflict(g, holder)
			} else if !taken {
				holders[at] = g
			}
		}
		out[g.Name] = a
	}
	return out
}

func (p KeyPolicy) accept(g *Gate) Acceptance {
	key := g.Taint.Key
	if len(g.Signals) == 0 {
		return Acceptance{Reason: v1alpha1.ReasonInvalidSpec, Message: "the gate names no signal to go by: add one to openWhen or closeWhen"}
	}
	if message := g.refusedToDetach(); message != "" {
		return Acceptance{Reason: v1alpha1.ReasonInvalidSpec, Message: message}
	}
	if strings.HasPrefix(key, v1alpha1.CoreTaintPrefix) && !g.detaches() {
		return Acceptance{Reason: v1alpha1.ReasonTaintKeyNotAllowed, Message: fmt.Sprintf(
			"the taint key %s belongs to Kubernetes: use another key", key)}
	}
	if p.Allowed != nil && !p.Allowed[key] {
		return Acceptance{Reason: v1alpha1.ReasonTaintKeyNotAllowed, Message: fmt.Sprintf(
			"the administrator has not allowed the taint key %s: add it to --allowed-taint-keys (now: %s) of both 'nodegate manifests' and 'nodegate controller', and apply the manifests again",
			key, listKeys(p.Allowed))}
	}
	if rule, ok := p.Managed[key]; ok {
		return Acceptance{Reason: v1alpha1.ReasonOwnedByNodeReadinessRule, Message: fmt.Sprintf(
			"the NodeReadinessRule %s manages the taint key %s: delete the rule, or use another key", rule, key)}
	}
	a := Acceptance{Accepted: true, Reason: v1alpha1.ReasonAccepted, Message: "the gate is in force"}
	if !g.ProvesBoot() && g.recloses() {
		a.Reason = v1alpha1.ReasonNoBootEvidence
		a.Message += "; none of its signals can tell the current boot from an earlier one, so after a reboot it opens on what was known before"
	}
	if !p.AllowsStamp(g.Stamp) {
		a.Reason = v1alpha1.ReasonStampNotAllowed
		a.Message += fmt.Sprintf("; its openings are not stamped, because the administrator has not allowed the annotation %s: "+
			"add it to --allowed-stamp-annotations (now: %s) of both 'nodegate manifests' and 'nodegate controller', and apply the manifests again",
			g.Stamp, listKeys(p.Stamps))
	}
	return a
}

// AllowsStamp tells whether a gate may stamp an annotation; none is allowed
// always.
func (p KeyPolicy) AllowsStamp(key string) bool {
	return key == "" || p.Stamps == nil || p.Stamps[key]
}

func conflict(g, holder *Gate) Acceptance {
	return Acceptance{Reason: v1alpha1.ReasonTaintConflict, Message: fmt.Sprintf(
		"the older gate %s has the taint %s, and a node cannot carry %s as well: use the same value, or another key",
		holder.Name, TaintText(holder.Taint), TaintText(g.Taint))}
}

func listKeys(keys map[string]bool) string {
	names := make([]string, 0, len(keys))
	for key := range keys {
		names = append(names, key)
	}
	if len(names) == 0 {
		return "none"
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
