// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/release"
)

// SteerResult is what open, close and reset print with -o json and -o yaml. Fields
// are added, and neither renamed nor given another meaning.
type SteerResult struct {
	// DryRun is client or server if nothing was kept.
	DryRun release.DryRun `json:"dryRun,omitempty"`
	Nodes  []SteeredNode  `json:"nodes"`
}

// SteeredNode is what was done to one node, and what comes of it.
type SteeredNode struct {
	Node string `json:"node"`
	Gate string `json:"gate"`
	// Changed tells whether something was written, or would have been.
	Changed bool `json:"changed"`
	// State, Until and Reason are those of the override; missing if there is none
	// any more.
	State  string    `json:"state,omitempty"`
	Until  time.Time `json:"until,omitzero"`
	Reason string    `json:"reason,omitempty"`
	// Now says what happens now, and Then what happens at the end.
	Now  string `json:"now"`
	Then string `json:"then,omitempty"`
	// Warnings say why it may have no effect, or one that was not meant.
	Warnings []string `json:"warnings,omitempty"`
}

// text says it for people, or names the nodes that were changed.
func (r *SteerResult) text(format string) string {
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

// plan says what is to be done to a node that was read, and what will come of it.
func (s *steerer) plan(node *corev1.Node) (SteeredNode, func(context.Context) error, error) {
	s.sight.now = time.Now()
	switch {
	case s.state == "":
		n, change := s.planReset(node)
		return n, change, nil
	case s.last == 0:
		return s.planTakeOff(node)
	}
	n, change := s.planOverride(node)
	return n, change, nil
}

func (s *steerer) planOverride(node *corev1.Node) (SteeredNode, func(context.Context) error) {
	o := gate.Override{State: s.state, Until: s.sight.now.Add(time.Duration(s.last)).UTC().Truncate(time.Second), Reason: s.reason, UID: node.UID}
	n := SteeredNode{Node: node.Name, Gate: s.gate, Changed: true, State: o.State, Until: o.Until, Reason: o.Reason}
	facts := cluster.NodeFacts(node)
	before := s.sight.stand(facts)
	facts.Overrides = map[string]string{s.gate: o.String()}
	after := s.sight.stand(facts)
	was, is := before.Verdict(s.gate), after.Verdict(s.gate)
	g := s.sight.gate(s.gate)
	n.Warnings = s.warnings(g, node, &after, is)
	n.Now = fmt.Sprintf("%s until %s%s", strings.ToLower(o.State), at(o.Until), s.effect(g, node, &after, was, is))
	n.Then = "then the gate is what its signals say; 'kubectl gate reset' ends it earlier"
	text := o.String()
	return n, func(ctx context.Context) error { return s.hand.Override(ctx, node, s.gate, text) }
}

// effect says what comes of an override at once, given what the gate is on the node
// and what it will be; nil for nothing.
func (s *steerer) effect(g *gate.Gate, node *corev1.Node, after *gate.Decision, was, is *gate.Verdict) string {
	if g == nil {
		return ""
	}
	if is == nil || is.DryRun || (is.After == v1alpha1.StateClosed) != (s.state == v1alpha1.StateClosed) || is.Overridden == nil {
		return ", without effect for now"
	}
	wasClosed := was != nil && was.Before == v1alpha1.StateClosed
	switch {
	case s.state == v1alpha1.StateClosed && wasClosed:
		return "; it is closed already, and stays so"
	case s.state == v1alpha1.StateClosed:
		return fmt.Sprintf("; its taint %s is put on at once", taintAfter(after, g))
	case !wasClosed:
		return "; it does not hold the node as it is, and will not meanwhile"
	case is.Overridden.HeldBy != "":
		return "; the taint stays, for gate " + is.Overridden.HeldBy
	}
	return fmt.Sprintf("; its taint %s goes at once", s.taintOn(node, g))
}

// warnings say why an override has no effect, or one that may not be meant.
func (s *steerer) warnings(g *gate.Gate, node *corev1.Node, after *gate.Decision, is *gate.Verdict) []string {
	var all []string
	warn := func(when bool, text string) {
		if when {
			all = append(all, text)
		}
	}
	if g == nil {
		warn(true, fmt.Sprintf("gate %s is no NodeGate, so that what comes of it is not seen from here: it is in a file of the controller, or gone", s.gate))
	} else {
		out := node.Labels[v1alpha1.OptOutLabel] == v1alpha1.OptOutValue
		warn(out, fmt.Sprintf("it is out of all gates by its label %s, and no override is followed", v1alpha1.OptOutLabel))
		warn(!out && g.Mode != v1alpha1.ModePaused && after.Ignored[s.gate] != "", "the override is not followed as things are: "+after.Ignored[s.gate])
		warn(g.Mode == v1alpha1.ModePaused, "the gate is paused, and an override does not move it until the pause ends")
		warn(g.Mode == v1alpha1.ModeDryRun, "the gate is in dry run: the override is tried out, and nothing changes on the node")
		warn(is != nil && is.Overridden != nil && is.Overridden.HeldBy != "" && s.state == v1alpha1.StateOpen,
			"another closed gate has the same taint, so that it stays on the node: override that one too")
		warn(is != nil && !is.DryRun && is.After == v1alpha1.StateClosed && s.state == v1alpha1.StateClosed && strings.HasSuffix(taintAfter(after, g), ":"+string(corev1.TaintEffectNoExecute)),
			"the taint is NoExecute, and evicts the pods that do not tolerate it")
	}
	warn(s.leader.Running == answerNo, s.leader.Message+"; nothing follows until one does")
	return all
}

// taintOn is the gate's taint as its record on the node has it.
func (s *steerer) taintOn(node *corev1.Node, g *gate.Gate) string {
	if r, err := gate.ParseRecord(node.Annotations[v1alpha1.RecordAnnotationPrefix+g.Name]); err == nil && r.Taint != "" {
		return r.Taint
	}
	return gate.TaintText(g.Taint)
}

// taintAfter is the gate's taint as the record that is written will have it.
func taintAfter(d *gate.Decision, g *gate.Gate) string {
	if r, err := gate.ParseRecord(d.Records[g.Name]); err == nil && r.Taint != "" {
		return r.Taint
	}
	return gate.TaintText(g.Taint)
}

func (s *steerer) planReset(node *corev1.Node) (SteeredNode, func(context.Context) error) {
	n := SteeredNode{Node: node.Name, Gate: s.gate}
	raw, exists := node.Annotations[v1alpha1.OverrideAnnotationPrefix+s.gate]
	if !exists {
		n.Now = "it is not overridden, and stays as it is"
		return n, nil
	}
	n.Changed, n.Now = true, "the override is removed"
	if o, err := gate.ParseOverride(raw); err == nil {
		n.Now = fmt.Sprintf("the override (%s until %s: %q) is removed", strings.ToLower(o.State), at(o.Until), o.Reason)
	}
	r, err := gate.ParseRecord(node.Annotations[v1alpha1.RecordAnnotationPrefix+s.gate])
	switch own := cmp.Or(r.State, StateNone); {
	case err != nil || r.Override == "":
		n.Then = "nothing else changes, for it was not what kept the gate as it is"
	case own == v1alpha1.StateClosed:
		n.Then = "the gate is closed by itself: it closes again at once, until its signals hold"
	default:
		n.Then = "the gate is open by itself, and opens at once"
	}
	if s.leader.Running == answerNo {
		n.Warnings = []string{s.leader.Message + "; nothing follows until one does"}
	}
	return n, func(ctx context.Context) error { return s.hand.Override(ctx, node, s.gate, "") }
}

// planTakeOff does what a gate waits for that a person reopens.
func (s *steerer) planTakeOff(node *corev1.Node) (SteeredNode, func(context.Context) error, error) {
	n := SteeredNode{Node: node.Name, Gate: s.gate}
	g := s.sight.gate(s.gate)
	if g == nil || !g.Manual {
		return n, nil, errors.New("say for how long, by --for (such as --for=1h), and why, by --reason: only a gate with 'reopen: Manual' is opened for good")
	}
	facts := cluster.NodeFacts(node)
	record, err := gate.ParseRecord(facts.Records[s.gate])
	if err != nil || record.State != v1alpha1.StateClosed {
		n.Now = "it is not closed, and stays as it is"
		return n, nil, nil
	}
	if record.Override != "" {
		return n, nil, errors.New("the gate is overridden here; 'kubectl gate reset' comes first")
	}
	before := s.sight.stand(facts)
	i := slices.IndexFunc(facts.Taints, func(t corev1.Taint) bool {
		return gate.TaintText(v1alpha1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}) == record.Taint
	})
	if i < 0 {
		n.Now = fmt.Sprintf("its taint %s has been taken off already", record.Taint)
		return n, nil, nil
	}
	if other := s.sharing(&before, facts, record.Taint); other != "" {
		return n, nil, fmt.Errorf("gate %s is closed too, with the same taint, and would put it back", other)
	}
	taint := facts.Taints[i]
	facts.Taints = slices.Delete(slices.Clone(facts.Taints), i, i+1)
	after := s.sight.stand(facts)
	if v := after.Verdict(s.gate); v == nil || v.After == v1alpha1.StateClosed {
		return n, nil, fmt.Errorf("the gate would put its taint back: %s", modeOf(g))
	}
	n.Changed = true
	n.Now = fmt.Sprintf("its taint %s is taken off, which opens it", record.Taint)
	n.Then = "it stays open while its signals go on holding, and closes when they hold anew"
	if s.leader.Running == answerNo {
		n.Warnings = []string{s.leader.Message + "; its record follows when one does"}
	}
	return n, func(ctx context.Context) error {
		return s.hand.TakeOff(ctx, node, v1alpha1.Taint{Key: taint.Key, Effect: taint.Effect})
	}, nil
}

func modeOf(g *gate.Gate) string {
	if g.Mode == v1alpha1.ModePaused {
		return "it is paused"
	}
	return "it is not in a state in which it could be opened by hand"
}

// sharing names another gate that is closed on the node with the same taint.
func (s *steerer) sharing(d *gate.Decision, n *gate.Node, taint string) string {
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if v.Gate == s.gate || v.Before != v1alpha1.StateClosed {
			continue
		}
		if r, err := gate.ParseRecord(n.Records[v.Gate]); err == nil && r.Taint == taint {
			return v.Gate
		}
	}
	return ""
}
