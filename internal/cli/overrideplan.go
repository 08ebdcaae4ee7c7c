// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/release"
	"github.com/nodegate/nodegate/internal/status"
)

// OverrideResult is the output of open, close and reset with -o json and -o yaml. Fields
// may be added, but are neither renamed nor changed in meaning.
type OverrideResult struct {
	// DryRun is client or server if nothing was persisted.
	DryRun release.DryRun   `json:"dryRun,omitempty"`
	Nodes  []OverriddenNode `json:"nodes"`
}

// OverriddenNode describes the change to a node and its effect.
type OverriddenNode struct {
	Node string `json:"node"`
	Gate string `json:"gate"`
	// Changed is true if something was written, or would have been in a dry run.
	Changed bool `json:"changed"`
	// State, Until and Reason are those of the override. Empty if there is no override
	// any more.
	State  string    `json:"state,omitempty"`
	Until  time.Time `json:"until,omitzero"`
	Reason string    `json:"reason,omitempty"`
	// Now is what happens now, and Then what happens later.
	Now  string `json:"now"`
	Then string `json:"then,omitempty"`
	// Warnings are the reasons why the change may have no effect or an unintended one.
	Warnings []string `json:"warnings,omitempty"`
}

// text returns human-readable text, or the names of the changed nodes.
func (r *OverrideResult) text(format string) string {
	var b strings.Builder
	for i := range r.Nodes {
		n := &r.Nodes[i]
		if format == formatName {
			if n.Changed {
				fmt.Fprintf(&b, "node/%s\n", n.Node)
			}
			continue
		}
		fmt.Fprintf(&b, "node/%s: gate %s: %s%s\n", n.Node, n.Gate, n.Now, r.DryRun.Suffix())
		if n.Then != "" {
			fmt.Fprintf(&b, "  %s\n", n.Then)
		}
	}
	return b.String()
}

// plan determines the change to a node that was read, and its effect. The function
// that it returns makes the change.
func (s *overrider) plan(node *corev1.Node, now time.Time) (OverriddenNode, func(context.Context) error, error) {
	s.now = now
	switch {
	case s.state == "":
		n, change := s.planReset(node)
		return n, change, nil
	case s.duration == 0:
		return s.planRemoveTaint(node)
	}
	n, change := s.planOverride(node)
	return n, change, nil
}

func (s *overrider) planOverride(node *corev1.Node) (OverriddenNode, func(context.Context) error) {
	o := gate.Override{State: s.state, Until: s.now.Add(time.Duration(s.duration)).UTC().Truncate(time.Second), Reason: s.reason, UID: node.UID}
	n := OverriddenNode{Node: node.Name, Gate: s.gate, Changed: true, State: o.State, Until: o.Until, Reason: o.Reason}
	facts := read.NodeFacts(node)
	before := s.gates.DecideNode(facts, s.now)
	if facts.Overrides = maps.Clone(facts.Overrides); facts.Overrides == nil {
		facts.Overrides = make(map[string]string)
	}
	facts.Overrides[s.gate] = o.String() // besides those of other gates, which may have the same taint
	after := s.gates.DecideNode(facts, s.now)
	was, is := before.Verdict(s.gate), after.Verdict(s.gate)
	g, _ := s.gates.Gate(s.gate) // nil for a gate that does not exist
	n.Warnings = s.warnings(g, node, &after, is)
	n.Now = fmt.Sprintf("%s until %s%s", strings.ToLower(o.State), printer.Time(o.Until), s.effect(g, node, &after, was, is))
	n.Then = "afterwards the gate follows its signals again; 'kubectl gate reset' ends the override earlier"
	text := o.String()
	return n, func(ctx context.Context) error { return s.overrides.Override(ctx, node, s.gate, text) }
}

// effect returns the immediate effect of an override, given the gate's verdicts on the
// node before and after. A nil verdict means that the gate does not apply to the node.
func (s *overrider) effect(g *gate.Gate, node *corev1.Node, after *gate.Decision, was, is *gate.Verdict) string {
	const without = ", currently without effect"
	switch {
	case g == nil:
		return ""
	case g.Mode == v1alpha1.ModePaused && is != nil && is.After != "": // an earlier override may be in effect
		return without + ": the gate stays " + strings.ToLower(is.After)
	case !s.takesEffect(is):
		return without
	}
	wasClosed := was != nil && was.Before == v1alpha1.StateClosed
	switch {
	case s.state == v1alpha1.StateClosed && wasClosed:
		return "; the gate is already closed and stays closed"
	case s.state == v1alpha1.StateClosed:
		return fmt.Sprintf("; taint %s is added immediately", recordedTaint(after.Records[g.Name], g))
	case !wasClosed:
		return "; the gate does not hold the node now, and will not hold it until then"
	case is.Overridden.HeldBy != "":
		return "; the taint stays because of gate " + is.Overridden.HeldBy
	}
	return fmt.Sprintf("; taint %s is removed immediately", recordedTaint(node.Annotations[v1alpha1.RecordAnnotationPrefix+g.Name], g))
}

// takesEffect reports whether the gate gets the state of the override, because of it.
func (s *overrider) takesEffect(is *gate.Verdict) bool {
	return is != nil && !is.DryRun && (is.After == v1alpha1.StateClosed) == (s.state == v1alpha1.StateClosed) && is.Overridden != nil && !is.Overridden.Until.IsZero()
}

// warnings returns the reasons why an override has no effect, or one that may be
// unintended.
func (s *overrider) warnings(g *gate.Gate, node *corev1.Node, after *gate.Decision, is *gate.Verdict) []string {
	var all []string
	warn := func(when bool, text string) {
		if when {
			all = append(all, text)
		}
	}
	if g == nil {
		warn(true, s.unknownGate())
	} else {
		out := gate.OptOut(node.Labels, g.PlainOptOut)
		warn(out != "", fmt.Sprintf("the node's label %s excludes it from all gates, and overrides have no effect", out))
		warn(out == "" && g.Mode != v1alpha1.ModePaused && after.Ignored[s.gate] != "", "the override is currently ignored: "+after.Ignored[s.gate])
		warn(g.Mode == v1alpha1.ModePaused, "the gate is paused: the override has no effect until the pause ends")
		warn(g.Mode == v1alpha1.ModeDryRun, "the gate is in dry run: the override is evaluated, but nothing changes on the node")
		warn(is != nil && is.Overridden != nil && is.Overridden.HeldBy != "" && s.state == v1alpha1.StateOpen,
			"another closed gate has the same taint, which stays on the node: override that gate too")
		warn(is != nil && !is.DryRun && is.After == v1alpha1.StateClosed && s.state == v1alpha1.StateClosed && willEvict(after, g),
			evictsWarning)
	}
	return append(all, s.withoutController("the override takes effect")...)
}

// withoutController returns the warning that the effect may come later, if no controller is running,
// or if this is unknown.
func (s *overrider) withoutController(effect string) []string {
	switch {
	case s.leader.Running == status.No:
		return []string{s.leader.Message + "; " + effect + " when a controller runs"}
	case s.leader.Running == status.Unknown && !s.leaseForbidden:
		return []string{s.leader.Message + "; if no controller is running, " + effect + " when one runs"}
	}
	return nil
}

// recordedTaint returns the gate's taint according to its record.
func recordedTaint(record string, g *gate.Gate) string {
	if r, err := gate.ParseRecord(record); err == nil && r.Taint != "" {
		return r.Taint
	}
	return gate.TaintText(g.Taint)
}

// willEvict reports whether the gate's taint, according to the record that will be written,
// evicts pods.
func willEvict(d *gate.Decision, g *gate.Gate) bool {
	return strings.HasSuffix(recordedTaint(d.Records[g.Name], g), ":"+string(corev1.TaintEffectNoExecute))
}

func (s *overrider) planReset(node *corev1.Node) (OverriddenNode, func(context.Context) error) {
	n := OverriddenNode{Node: node.Name, Gate: s.gate}
	raw, exists := node.Annotations[v1alpha1.OverrideAnnotationPrefix+s.gate]
	if !exists {
		n.Now = "no override; nothing to do"
		return n, nil
	}
	n.Changed, n.Now = true, "the override is removed"
	if o, err := gate.ParseOverride(raw); err == nil {
		n.Now = fmt.Sprintf("the override (%s until %s: %q) is removed", strings.ToLower(o.State), printer.Time(o.Until), o.Reason)
	}
	facts := read.NodeFacts(node)
	facts.Overrides = maps.Clone(facts.Overrides)
	delete(facts.Overrides, s.gate)
	after := s.gates.DecideNode(facts, s.now)
	is := after.Verdict(s.gate)
	g, _ := s.gates.Gate(s.gate) // nil for a gate that does not exist
	n.Then, n.Warnings = s.effectOfReset(g, node, is), s.resetWarnings(g, &after, is)
	return n, func(ctx context.Context) error { return s.overrides.Override(ctx, node, s.gate, "") }
}

// effectOfReset returns the effect of the removal of an override, given the gate's verdict
// without it, or "" if the effect is unknown.
func (s *overrider) effectOfReset(g *gate.Gate, node *corev1.Node, is *gate.Verdict) string {
	r, err := gate.ParseRecord(node.Annotations[v1alpha1.RecordAnnotationPrefix+s.gate])
	switch {
	case g == nil:
		return ""
	case err != nil || r.Override == "":
		return "nothing else changes: the override did not determine the gate's state"
	case g.Mode == v1alpha1.ModePaused:
		return fmt.Sprintf("the gate is paused: it stays %s until the pause ends", strings.ToLower(r.Override))
	case is != nil && is.After == r.Override:
		return fmt.Sprintf("the gate stays %s for now: it keeps its state on the node", strings.ToLower(r.Override))
	case is == nil || is.After != v1alpha1.StateClosed:
		return "without the override the gate is open: it opens immediately"
	case g.Manual:
		return "without the override the gate is closed: it closes again immediately, until a user removes its taint (reopen: Manual)"
	case g.CloseWhen:
		return "without the override the gate is closed: it closes again immediately, and stays closed while its signals hold"
	}
	return "without the override the gate is closed: it closes again immediately, until its signals hold"
}

// resetWarnings returns the reasons why the removal of an override has no effect, or one that
// may be unintended.
func (s *overrider) resetWarnings(g *gate.Gate, after *gate.Decision, is *gate.Verdict) (all []string) {
	switch {
	case g == nil:
		all = append(all, s.unknownGate())
	case is != nil && is.Closed() && willEvict(after, g):
		all = append(all, evictsWarning)
	}
	return append(all, s.withoutController("the change takes effect")...)
}

// evictsWarning is the warning about a gate that closes with the effect NoExecute.
const evictsWarning = "the taint is NoExecute: pods that do not tolerate it are evicted"

// unknownGate returns the warning about a gate that does not exist.
func (s *overrider) unknownGate() string {
	return fmt.Sprintf("the effect is unknown: NodeGate %s does not exist; the gate was deleted, or is declared in a file of the controller", s.gate)
}

// planRemoveTaint plans to remove the taint of a gate with reopen Manual, which opens
// the gate.
func (s *overrider) planRemoveTaint(node *corev1.Node) (OverriddenNode, func(context.Context) error, error) {
	n := OverriddenNode{Node: node.Name, Gate: s.gate}
	g, _ := s.gates.Gate(s.gate) // nil for a gate that does not exist
	if g == nil || !g.Manual {
		return n, nil, errors.New("--for (for example --for=1h) and --reason are required: only a gate with 'reopen: Manual' can be opened permanently")
	}
	facts := read.NodeFacts(node)
	record, err := gate.ParseRecord(facts.Records[s.gate])
	if err != nil || record.State != v1alpha1.StateClosed {
		n.Now = "the gate is not closed; nothing to do"
		return n, nil, nil
	}
	if record.Override != "" {
		return n, nil, errors.New("the gate is overridden on this node: run 'kubectl gate reset' first")
	}
	id := gate.IDOf(record.RecordedTaint()) // another writer may have changed the value
	i := slices.IndexFunc(facts.Taints, func(t corev1.Taint) bool { return gate.TaintID{Key: t.Key, Effect: t.Effect} == id })
	if i < 0 {
		n.Now = fmt.Sprintf("taint %s is already removed; nothing to do", record.Taint)
		return n, nil, nil
	}
	taint := facts.Taints[i]
	facts.Taints = slices.Delete(slices.Clone(facts.Taints), i, i+1)
	after := s.gates.DecideNode(facts, s.now)
	other, opens := s.gateSharingTaint(&after, facts, id)
	if other != "" && !opens {
		return n, nil, fmt.Errorf("gate %s is also closed, with the same taint, and would add it again", other)
	}
	if v := after.Verdict(s.gate); v == nil || v.After == v1alpha1.StateClosed {
		return n, nil, fmt.Errorf("the gate would add its taint again: %s", whyNotOpened(g))
	}
	n.Changed = true
	n.Now = fmt.Sprintf("taint %s is removed, which opens the gate", gate.TaintText(v1alpha1.TaintOf(taint)))
	n.Then = "the gate stays open until its signals begin to hold again"
	if other != "" {
		n.Warnings = append(n.Warnings, fmt.Sprintf("gate %s is also closed, with the same taint: it opens as well", other))
	}
	n.Warnings = append(n.Warnings, s.withoutController("the gate's record is updated")...)
	return n, func(ctx context.Context) error {
		return s.overrides.RemoveTaint(ctx, node, v1alpha1.Taint{Key: taint.Key, Effect: taint.Effect})
	}, nil
}

func whyNotOpened(g *gate.Gate) string {
	if g.Mode == v1alpha1.ModePaused {
		return "it is paused"
	}
	return "it cannot be opened manually in its current state"
}

// gateSharingTaint returns the name of another gate that is closed on the node with the
// same taint, or "", and whether it opens by a decision. A gate that stays closed comes first.
func (s *overrider) gateSharingTaint(d *gate.Decision, n *gate.Node, id gate.TaintID) (other string, opens bool) {
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if v.Gate == s.gate || v.Before != v1alpha1.StateClosed {
			continue
		}
		if r, err := gate.ParseRecord(n.Records[v.Gate]); err != nil || gate.IDOf(r.RecordedTaint()) != id {
			continue
		}
		if v.After == v1alpha1.StateClosed {
			return v.Gate, false
		}
		other, opens = v.Gate, true
	}
	return other, opens
}
