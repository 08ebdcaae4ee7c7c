// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/printer"
)

// Text returns the explanation as human-readable text.
func (e *Explanation) Text(m printer.Marks) string {
	var b strings.Builder
	b.WriteString(e.headline() + "\n")
	if e.OptedOut {
		fmt.Fprintf(&b, "Its label %s excludes it from all gates.\n", e.OptOutLabel)
	}
	if e.IgnoredOptOutLabel != "" {
		fmt.Fprintf(&b, "Its label %s is ignored, because a kubelet can set it: use the label %s=%s, or run nodegate with --allow-plain-opt-out.\n",
			e.IgnoredOptOutLabel, v1alpha1.OptOutLabel, v1alpha1.OptOutValue)
	}
	for i := range e.Gates {
		e.Gates[i].write(&b, m, e.Time)
	}
	if len(e.IgnoredOverrides)+len(e.Unread) > 0 {
		b.WriteByte('\n')
	}
	for _, name := range slices.Sorted(maps.Keys(e.IgnoredOverrides)) {
		fmt.Fprintf(&b, "The override of gate %s is ignored: %s.\n", name, e.IgnoredOverrides[name])
	}
	for _, what := range e.Unread {
		fmt.Fprintf(&b, "Incomplete: %s.\n", what)
	}
	return b.String()
}

// headline states by how many gates the node is held now, and by how many it is about to be.
func (e *Explanation) headline() string {
	now, next := 0, 0
	for i := range e.Gates {
		switch g := &e.Gates[i]; {
		case !g.holds():
		case g.State == v1alpha1.StateClosed && !g.TaintMissing:
			now++
		default:
			next++
		}
	}
	switch {
	case len(e.Gates) == 0:
		return fmt.Sprintf("No gate applies to node %s.", e.Node)
	case now+next == 0:
		return fmt.Sprintf("No gate holds node %s.", e.Node)
	case now == 0:
		return fmt.Sprintf("Node %s is about to be held by %d of %d gates.", e.Node, next, len(e.Gates))
	case next == 0:
		return fmt.Sprintf("Node %s is held by %d of %d gates.", e.Node, now, len(e.Gates))
	}
	return fmt.Sprintf("Node %s is held by %d of %d gates, and about to be held by %d more.", e.Node, now, len(e.Gates), next)
}

// write writes one gate: a line with its state, followed by rows with details.
func (e *Gate) write(b *strings.Builder, m printer.Marks, now time.Time) {
	fmt.Fprintf(b, "\n%s: %s\n", e.Gate, e.stateText(now))
	rows := printer.NewRows(b)
	row := func(label, text string) {
		if text != "" {
			rows.Row(label, text)
		}
	}
	row("taint", e.taintText())
	if len(e.Signals) > 0 {
		row(e.rule())
	}
	for _, s := range e.Signals {
		row(m[s.State]+" "+s.Name, fmt.Sprintf("%s (%s)%s", s.Message, s.Reason, printer.Elapsed(", for ", s.Since, now)))
	}
	if e.Obstacle != nil {
		row("blocked", e.Obstacle.Message)
	}
	row("group", e.group())
	if !e.ClosesBy.IsZero() {
		row("closes", "at "+printer.Time(e.ClosesBy)+" or earlier, unless its signals hold again"+e.orGroup())
	}
	row("deadline", e.deadline(now))
	row("override", e.overridden())
	if e.Ring != "" {
		row("contradiction", fmt.Sprintf("gates %s would open and close each other endlessly, and keep their state: change their signals so that none of them depends on what another one writes", e.Ring))
	}
	if e.Contended {
		row("contended", "another writer repeatedly reverts the taint: see the gate's condition Contended for the writer")
	}
	row("not in force", e.NotInForce)
	row("not ready", e.NotReady)
	row("next", e.Next)
	rows.Flush()
}

func (e *Gate) taintText() string {
	switch {
	case e.TaintMissing:
		return e.Taint + ", which is not on the node"
	case e.Soft:
		return e.Taint + ", which does not keep pods off the node"
	}
	return e.Taint
}

// stateText returns the gate's state on the node and the reason for it.
func (e *Gate) stateText(now time.Time) string {
	state := map[string]string{v1alpha1.StateClosed: "closed", v1alpha1.StateOpen: "open", StateNone: "not a member"}
	becomes := map[string]string{v1alpha1.StateClosed: "about to close", v1alpha1.StateOpen: "about to open", StateNone: "about to release the node"}
	because := openedBecause
	if cmp.Or(e.Becomes, e.State) == v1alpha1.StateClosed {
		because = closedBecause
	}
	text := state[e.State]
	switch {
	case e.DryRun && e.State == StateNone:
		text = "would not be a member (dry run)"
	case e.DryRun:
		text = "would be " + text + " (dry run)"
	case e.Becomes != "":
		text += printer.Elapsed(" for ", e.Since, now) + ", " + becomes[e.Becomes]
	case e.State == v1alpha1.StateClosed && e.Reason == v1alpha1.ReasonAdopted:
		text += printer.Elapsed(" for at least ", e.Since, now) // the taint may have been there for longer
	default:
		text += printer.Elapsed(" for ", e.Since, now)
	}
	if because[e.Reason] != "" {
		text += ", because " + because[e.Reason]
	}
	if e.Reason != "" {
		text += fmt.Sprintf(" (%s)", e.Reason)
	}
	return text
}

// group describes the group of the node, unless the obstacle does.
func (e *Gate) group() string {
	if e.Group == nil || e.Obstacle != nil && strings.Contains(e.Obstacle.Message, e.Group.Message) {
		return ""
	}
	return e.Group.Message
}

// orGroup continues the sentence that the gate closes unless its signals hold again.
func (e *Gate) orGroup() string {
	if e.Group == nil || e.Group.Complete {
		return ""
	}
	return " and its group is complete"
}

// rule returns the row that introduces the gate's signals.
func (e *Gate) rule() (label, text string) {
	if e.CloseWhen {
		return "closed", "while all of these hold:"
	}
	return "opens", "when all of these hold:"
}

func (e *Gate) deadline(now time.Time) string {
	switch {
	case e.Overdue && e.Condition != "":
		return "has passed; the node has the condition " + e.Condition
	case e.Overdue && e.ConditionThrottled:
		return "has passed; the node does not have the gate's condition yet: the controller is about to write it, budget.maxReclosed " +
			"allows it on no more nodes, or nodegate may not write it; see the gate's conditions Overdue and Ready"
	case e.Overdue:
		return "has passed"
	case e.Deadline.IsZero():
		return ""
	}
	return "passes in " + duration.HumanDuration(e.Deadline.Sub(now))
}

func (e *Gate) overridden() string {
	o := e.Override
	if o == nil {
		return ""
	}
	until := "while the gate keeps its state"
	if !o.Until.IsZero() {
		until = fmt.Sprintf("until %s: %q", printer.Time(o.Until), o.Reason)
	}
	text := fmt.Sprintf("%s %s; without the override it would be %s", strings.ToLower(o.State), until, strings.ToLower(o.Own))
	if o.Own == StateNone {
		text = strings.TrimSuffix(text, "be none") + "not hold the node"
	}
	if o.HeldBy != "" {
		text += "; gate " + o.HeldBy + " keeps the taint on the node"
	}
	return text
}
