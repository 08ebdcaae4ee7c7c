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
	// Allowed are the taints that the administrator allows.
	Allowed AllowedTaints
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
// node can carry only one of the two; both are told. A gate in dry run has others
// yield to it only if they are in dry run too, and is accepted whatever the
// administrator or a NodeReadinessRule says about its keys, which it does not
// touch.
func Accept(gates []Gate, policy KeyPolicy) map[string]Acceptance {
	byAge := make([]*Gate, len(gates))
	for i := range gates {
		byAge[i] = &gates[i]
	}
	slices.SortFunc(byAge, func(a, b *Gate) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
	})
	earlier := make(claims)
	yielding := make(map[string][]yield)
	out := make(map[string]Acceptance, len(gates))
	for _, g := range byAge {
		a := policy.accept(g)
		if t, by, contradicts := earlier.against(g); a.Accepted && contradicts {
			a = conflict(t, by.gate, by.value)
			if g.Mode != v1alpha1.ModeDryRun || by.gate.Mode == v1alpha1.ModeDryRun { // what is only tried is no news to others
				yielding[by.gate.Name] = append(yielding[by.gate.Name], yield{g, t})
			}
		}
		if a.Accepted {
			earlier.add(g)
		}
		out[g.Name] = a
	}
	for name, younger := range yielding {
		a := out[name]
		if a.Reason != v1alpha1.ReasonInDryRun && a.Reason != v1alpha1.ReasonPaused {
			a.Reason = v1alpha1.ReasonTaintConflict
		}
		a.Message += "; " + tellYounger(younger)
		out[name] = a
	}
	return out
}

// claims are who was first to claim each taint, and with which value.
type claims map[claimKey]claim

type claimKey struct {
	key    string
	effect corev1.TaintEffect
	tried  bool // by the gates in dry run as well as by the others
}

type claim struct {
	gate  *Gate
	value string
}

// yield is a gate that yields to an older one, and the taint because of which.
type yield struct {
	gate  *Gate
	taint v1alpha1.Taint
}

// against returns the first taint of a gate that an earlier claim contradicts.
func (c claims) against(g *Gate) (v1alpha1.Taint, claim, bool) {
	for _, t := range g.Taints() {
		first, taken := c[claimKey{t.Key, t.Effect, g.Mode == v1alpha1.ModeDryRun}]
		if taken && first.value != t.Value {
			return t, first, true
		}
	}
	return v1alpha1.Taint{}, claim{}, false
}

// add has a gate claim its taints where it is the first.
func (c claims) add(g *Gate) {
	for _, t := range g.Taints() {
		for _, at := range []claimKey{{t.Key, t.Effect, true}, {t.Key, t.Effect, false}} {
			if _, taken := c[at]; !taken && (at.tried || g.Mode != v1alpha1.ModeDryRun) {
				c[at] = claim{g, t.Value}
			}
		}
	}
}

func (p KeyPolicy) accept(g *Gate) Acceptance {
	if message := g.refusedSpec(); message != "" {
		return Acceptance{Reason: v1alpha1.ReasonInvalidSpec, Message: message}
	}
	if key := g.coreKey(); key != "" {
		return Acceptance{Reason: v1alpha1.ReasonTaintKeyNotAllowed, Message: fmt.Sprintf(
			"the taint key %s belongs to Kubernetes: use another key", key)}
	}
	refusal := p.refuse(g)
	if refusal.Message != "" && g.Mode != v1alpha1.ModeDryRun {
		return refusal
	}
	a := g.inForce()
	remark := func(reason, message string) {
		if a.Message += message; a.Reason != v1alpha1.ReasonInDryRun && a.Reason != v1alpha1.ReasonPaused {
			a.Reason = reason
		}
	}
	if !g.ProvesBoot() && g.recloses() {
		remark(v1alpha1.ReasonNoBootEvidence,
			"; none of its signals can tell the current boot from an earlier one, so after a reboot it opens on what was known before")
	}
	if !p.AllowsStamp(g.Stamp) {
		remark(v1alpha1.ReasonStampNotAllowed, fmt.Sprintf("; its openings are not stamped, because the administrator has not allowed the annotation %s: "+
			"add it to --allowed-stamp-annotations (now: %s) of both 'nodegate manifests' and 'nodegate controller', and apply the manifests again",
			g.Stamp, listKeys(p.Stamps)))
	}
	if refusal.Message != "" {
		a.Message += "; with mode Enforce it would not be accepted: " + refusal.Message
	}
	return a
}

// inForce says how a gate that nothing speaks against is in force.
func (g *Gate) inForce() Acceptance {
	switch g.Mode {
	case v1alpha1.ModePaused:
		return Acceptance{Accepted: true, Reason: v1alpha1.ReasonPaused,
			Message: "the gate is paused: it closes and opens no node, and new nodes are not closed"}
	case v1alpha1.ModeDryRun:
		return Acceptance{Accepted: true, Reason: v1alpha1.ReasonInDryRun,
			Message: "the gate is in dry run: it changes no node, and new nodes are not closed"}
	}
	return Acceptance{Accepted: true, Reason: v1alpha1.ReasonAccepted, Message: "the gate is in force"}
}

// refuse says why a gate may not act on the keys of its taints, or nothing.
func (p KeyPolicy) refuse(g *Gate) Acceptance {
	for _, t := range g.Taints() {
		if !p.Allowed.Allows(t) {
			return Acceptance{Reason: v1alpha1.ReasonTaintKeyNotAllowed, Message: fmt.Sprintf(
				"the administrator has not allowed the taint %s: add it to --allowed-taint-keys (now: %s) of both 'nodegate manifests' and 'nodegate controller', and apply the manifests again",
				IDOf(t), p.Allowed)}
		}
		if rule, ok := p.Managed[t.Key]; ok {
			return Acceptance{Reason: v1alpha1.ReasonOwnedByNodeReadinessRule, Message: fmt.Sprintf(
				"the NodeReadinessRule %s manages the taint key %s: delete the rule, or use another key", rule, t.Key)}
		}
	}
	return Acceptance{}
}

// coreKey returns the first of the gate's taint keys that belongs to Kubernetes
// and is not for gates, or nothing.
func (g *Gate) coreKey() string {
	for _, t := range g.Taints() {
		if strings.HasPrefix(t.Key, v1alpha1.CoreTaintPrefix) && !g.detaches() {
			return t.Key
		}
	}
	return ""
}

// refusedSpec says what of the gate's own spec keeps it from being in force, or
// nothing. The API server refuses most of it; a file may say anything.
func (g *Gate) refusedSpec() string {
	if len(g.Signals) == 0 {
		return "the gate names no signal to go by: add one to openWhen or closeWhen"
	}
	return cmp.Or(g.refusedToDetach(), g.refusedToReclose())
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

// tellYounger says which gates yield to one, of which the first is named however
// many there are.
func tellYounger(younger []yield) string {
	first := younger[0]
	if len(younger) == 1 {
		return fmt.Sprintf("the younger gate %s asks for the taint %s, and is not accepted", first.gate.Name, TaintText(first.taint))
	}
	return fmt.Sprintf("the younger gate %s asks for the taint %s, as %d more do for other values than this gate's, and they are not accepted",
		first.gate.Name, TaintText(first.taint), len(younger)-1)
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
