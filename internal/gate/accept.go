// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// KeyPolicy specifies which taints and annotations gates may use.
type KeyPolicy struct {
	// Allowed contains the taints that the administrator allows.
	Allowed AllowedTaints
	// Stamps contains the annotations that gates may write when they open
	// (openedAtAnnotation). Nil allows every annotation.
	Stamps map[string]bool
	// PlainOptOut reports whether the opt-out label that kubelets can set excludes
	// nodes from gates.
	PlainOptOut bool
	// Managed maps taint keys to the name of the NodeReadinessRule that manages the
	// key.
	Managed map[string]string
	// SameBoot describes, in human-readable form, the nodes that share a boot ID with
	// another node. Empty if there are none.
	SameBoot string
}

// Acceptance reports whether a gate is in force and, if not, why.
type Acceptance struct {
	Accepted bool
	Reason   string
	Message  string
}

// Accept returns the acceptance of each gate, by name. Two gates conflict if they
// specify the same taint key and effect with different values, because a node can carry
// only one of the two taints. The older gate is accepted (for gates of the same age:
// the one whose name sorts first) and the other one is not; the acceptance of both
// describes the conflict.
//
// A gate that is broken, such as one that is still being compiled, is not accepted, but takes
// precedence nevertheless: its taint stays on the nodes that it holds.
//
// A gate in dry run takes precedence only over other gates in dry run. It is accepted
// even if the administrator does not allow its keys or a NodeReadinessRule manages them,
// because it does not change any taint.
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
			if g.Mode != v1alpha1.ModeDryRun || by.gate.Mode == v1alpha1.ModeDryRun { // a dry run does not concern gates that act
				yielding[by.gate.Name] = append(yielding[by.gate.Name], yield{g, t})
			}
		}
		if a.Accepted || g.Broken && policy.refuse(g).Message == "" {
			earlier.add(g)
		}
		out[g.Name] = a
	}
	for name, younger := range yielding {
		a := out[name]
		if !a.Accepted {
			continue
		}
		if a.Reason != v1alpha1.ReasonInDryRun && a.Reason != v1alpha1.ReasonPaused {
			a.Reason = v1alpha1.ReasonTaintConflict
		}
		a.Message += "; " + youngerMessage(younger)
		out[name] = a
	}
	return out
}

// claims maps each taint to the first gate that claims it.
type claims map[claimKey]claim

type claimKey struct {
	TaintID
	dryRun bool // whether gates in dry run count as well
}

type claim struct {
	gate  *Gate
	value string
}

// yield is a gate that yields to an older one, with the conflicting taint.
type yield struct {
	gate  *Gate
	taint v1alpha1.Taint
}

// against returns the first taint of the gate that conflicts with an earlier claim.
func (c claims) against(g *Gate) (v1alpha1.Taint, claim, bool) {
	for _, t := range g.Taints() {
		first, taken := c[claimKey{IDOf(t), g.Mode == v1alpha1.ModeDryRun}]
		if taken && first.value != t.Value {
			return t, first, true
		}
	}
	return v1alpha1.Taint{}, claim{}, false
}

// add records the taints that the gate is the first to claim.
func (c claims) add(g *Gate) {
	for _, t := range g.Taints() {
		for _, at := range []claimKey{{IDOf(t), true}, {IDOf(t), false}} {
			if _, taken := c[at]; !taken && (at.dryRun || g.Mode != v1alpha1.ModeDryRun) {
				c[at] = claim{g, t.Value}
			}
		}
	}
}

func (p KeyPolicy) accept(g *Gate) Acceptance {
	if message := g.refusedSpec(); message != "" {
		return Acceptance{Reason: v1alpha1.ReasonInvalidSpec, Message: message}
	}
	if message := g.reservedKey(); message != "" {
		return Acceptance{Reason: v1alpha1.ReasonTaintKeyNotAllowed, Message: message}
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
			"; none of its signals can distinguish the current boot from an earlier one, so after a reboot the gate may open on outdated information")
	}
	if p.SameBoot != "" && g.ProvesBoot() && g.recloses() {
		remark(v1alpha1.ReasonNoBootEvidence, fmt.Sprintf(
			"; some nodes share a boot ID (%s), as containers on one host do: their reboots are not detected and do not close the gate", p.SameBoot))
	}
	if !p.AllowsStamp(g.Stamp) {
		remark(v1alpha1.ReasonStampNotAllowed, fmt.Sprintf("; openedAtAnnotation is not written, because the administrator has not allowed the annotation %s: "+
			"add it to --allowed-stamp-annotations (now: %s) of both 'nodegate manifests' and 'nodegate controller', and apply the manifests again",
			g.Stamp, listKeys(p.Stamps)))
	}
	if refusal.Message != "" {
		a.Message += "; with mode Enforce it would not be accepted: " + refusal.Message
	}
	return a
}

// inForce returns the acceptance of a gate that has no problems.
func (g *Gate) inForce() Acceptance {
	switch g.Mode {
	case v1alpha1.ModePaused:
		return Acceptance{Accepted: true, Reason: v1alpha1.ReasonPaused,
			Message: "the gate is paused: it neither opens nor closes on any node, and new nodes are not closed"}
	case v1alpha1.ModeDryRun:
		return Acceptance{Accepted: true, Reason: v1alpha1.ReasonInDryRun,
			Message: "the gate is in dry run: it does not change nodes, and new nodes are not closed"}
	}
	return Acceptance{Accepted: true, Reason: v1alpha1.ReasonAccepted, Message: "the gate is in force"}
}

// refuse returns why the gate may not use its taints. The message is empty if it may. It names
// three of the allowed taints: with all of them, it would not fit in an Event.
func (p KeyPolicy) refuse(g *Gate) Acceptance {
	for _, t := range g.Taints() {
		if !p.Allowed.Allows(t) {
			return Acceptance{Reason: v1alpha1.ReasonTaintKeyNotAllowed, Message: fmt.Sprintf(
				"the administrator has not allowed the taint %s: add it to the chart's allowedTaintKeys, or to --allowed-taint-keys of both 'nodegate manifests' and 'nodegate controller', and apply the manifests again (allowed now: %s)",
				IDOf(t), p.Allowed.list(t.Key, 3))}
		}
		if rule, ok := p.Managed[t.Key]; ok {
			return Acceptance{Reason: v1alpha1.ReasonOwnedByNodeReadinessRule, Message: fmt.Sprintf(
				"the NodeReadinessRule %s manages the taint key %s: delete the rule, or use another key", rule, t.Key)}
		}
	}
	return Acceptance{}
}

// reservedKey returns why no gate may have one of the gate's taint keys, even if the
// administrator allows it, or "".
func (g *Gate) reservedKey() string {
	for _, t := range g.Taints() {
		switch {
		case strings.HasPrefix(t.Key, v1alpha1.CoreTaintPrefix) && !g.detaches():
			return fmt.Sprintf("the taint key %s belongs to Kubernetes: use another key", t.Key)
		case v1alpha1.AffectsAllGates(t.Key):
			return fmt.Sprintf("the taint key %s marks nodes that are being set up or shut down, which affects every gate: use another key", t.Key)
		}
	}
	return ""
}

// refusedSpec returns why the gate's own spec prevents it from being in force, or "".
// The API server rejects most of these specs, but a gate may also come from a file.
func (g *Gate) refusedSpec() string {
	if len(g.Signals) == 0 {
		return "the gate has no signals: add one to openWhen or closeWhen"
	}
	return cmp.Or(g.refusedToDetach(), g.refusedToReclose())
}

// refusedToReclose returns why the gate's recloseTaint prevents it from being in force,
// or "".
func (g *Gate) refusedToReclose() string {
	switch again := g.RecloseTaint; {
	case again.Key == "":
	case g.CloseWhen:
		return "a closeWhen gate has only one taint: remove recloseTaint"
	case again.Key == g.Taint.Key && again.Effect == g.Taint.Effect && again.Value != g.Taint.Value:
		return "recloseTaint must differ from taint in more than its value: use another key, or remove recloseTaint"
	}
	return ""
}

// AllowsStamp reports whether a gate may write the annotation. The empty key, which
// means that no annotation is written, is always allowed.
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

// youngerMessage describes the gates that yield to a gate. It names only the first of
// them, so that its length is bounded.
func youngerMessage(younger []yield) string {
	first := younger[0]
	if len(younger) == 1 {
		return fmt.Sprintf("the younger gate %s specifies the conflicting taint %s and is not accepted", first.gate.Name, TaintText(first.taint))
	}
	return fmt.Sprintf("the younger gate %s specifies the conflicting taint %s and is not accepted, nor are %d other gates with conflicting values",
		first.gate.Name, TaintText(first.taint), len(younger)-1)
}

func listKeys(keys map[string]bool) string {
	return cmp.Or(strings.Join(slices.Sorted(maps.Keys(keys)), ", "), "none")
}
