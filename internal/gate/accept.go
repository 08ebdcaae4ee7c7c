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
// older one (or, of the same age, to one whose name sorts first) that has, among
// its taints, the key and effect of one of its own with another value, since a
// node can carry only one of the two.
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
	type claim struct {
		by    *Gate
		value string
	}
	holders := make(map[slot]claim)
	out := make(map[string]Acceptance, len(gates))
	for _, g := range byAge {
		a, taints := policy.accept(g), g.Taints()
		for _, t := range taints {
			if held, taken := holders[slot{t.Key, t.Effect}]; a.Accepted && taken && held.value != t.Value {
				a = conflict(t, held.by, held.value)
			}
		}
		for _, t := range taints {
			if at := (slot{t.Key, t.Effect}); a.Accepted && holders[at].by == nil {
				holders[at] = claim{g, t.Value}
			}
		}
		out[g.Name] = a
	}
	return out
}

func (p KeyPolicy) accept(g *Gate) Acceptance {
	if len(g.Signals) == 0 {
		return Acceptance{Reason: v1alpha1.ReasonInvalidSpec, Message: "the gate names no signal to go by: add one to openWhen or closeWhen"}
	}
	if message := g.refusedToDetach(); message != "" {
		return Acceptance{Reason: v1alpha1.ReasonInvalidSpec, Message: message}
	}
	if message := g.refusedToReclose(); message != "" {
		return Acceptance{Reason: v1alpha1.ReasonInvalidSpec, Message: message}
	}
	for _, t := range g.Taints() {
		if reason, message := p.refuses(t.Key, g.detaches()); reason != "" {
			return Acceptance{Reason: reason, Message: message}
		}
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

// refuses says why a gate that detaches volumes, or one that does not, may not use
// a taint key, or nothing.
func (p KeyPolicy) refuses(key string, detaches bool) (reason, message string) {
	if strings.HasPrefix(key, v1alpha1.CoreTaintPrefix) && !detaches {
		return v1alpha1.ReasonTaintKeyNotAllowed, fmt.Sprintf("the taint key %s belongs to Kubernetes: use another key", key)
	}
	if p.Allowed != nil && !p.Allowed[key] {
		return v1alpha1.ReasonTaintKeyNotAllowed, fmt.Sprintf(
			"the administrator has not allowed the taint key %s: add it to --allowed-taint-keys (now: %s) of both 'nodegate manifests' and 'nodegate controller', and apply the manifests again",
			key, listKeys(p.Allowed))
	}
	if rule, ok := p.Managed[key]; ok {
		return v1alpha1.ReasonOwnedByNodeReadinessRule, fmt.Sprintf(
			"the NodeReadinessRule %s manages the taint key %s: delete the rule, or use another key", rule, key)
	}
	return "", ""
}

// refusedToReclose says why a gate with this recloseTaint is not in force, or
// nothing.
func (g *Gate) refusedToReclose() string {
	switch again := g.RecloseTaint; {
	case again.Key == "":
	case g.CloseWhen:
		return "a closeWhen gate has one taint and no recloseTaint: remove it"
	case again.Key == g.Taint.Key && again.Effect == g.Taint.Effect && again.Value != g.Taint.Value:
		return "recloseTaint differs from taint in nothing but its value, by which nobody tells one from the other: use another key, or remove recloseTaint"
	}
	return ""
}

// AllowsStamp tells whether a gate may stamp an annotation; none is allowed
// always.
func (p KeyPolicy) AllowsStamp(key string) bool {
	return key == "" || p.Stamps == nil || p.Stamps[key]
}

func conflict(t v1alpha1.Taint, holder *Gate, value string) Acceptance {
	held := t
	held.Value = value
	return Acceptance{Reason: v1alpha1.ReasonTaintConflict, Message: fmt.Sprintf(
		"the older gate %s has the taint %s, and a node cannot carry %s as well: use the same value, or another key",
		holder.Name, TaintText(held), TaintText(t))}
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
