// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// marks say in one sign what a signal says, by its state.
type marks map[string]string

var (
	signs = marks{gate.Holds.String(): "✓", gate.NotYet.String(): "✗", gate.Unknown.String(): "?"}
	// plainMarks are for pipes and files.
	plainMarks = marks{gate.Holds.String(): "+", gate.NotYet.String(): "-", gate.Unknown.String(): "?"}
)

func marksFor(out io.Writer) marks {
	if isTerminal(out) {
		return signs
	}
	return plainMarks
}

// text is the explanation for people.
func (e *Explanation) text(m marks) string {
	var b strings.Builder
	holding := 0
	for i := range e.Gates {
		if e.Gates[i].holds() {
			holding++
		}
	}
	switch {
	case holding > 0:
		fmt.Fprintf(&b, "Node %s is held by %d of %d gates.\n", e.Node, holding, len(e.Gates))
	case len(e.Gates) > 0:
		fmt.Fprintf(&b, "No gate holds node %s.\n", e.Node)
	default:
		fmt.Fprintf(&b, "No gate concerns node %s.\n", e.Node)
	}
	if e.OptedOut {
		fmt.Fprintf(&b, "It is out of all gates by its label %s.\n", v1alpha1.OptOutLabel)
	}
	for i := range e.Gates {
		e.Gates[i].write(&b, m, e.Time)
	}
	if len(e.IgnoredOverrides)+len(e.Unread) > 0 {
		b.WriteByte('\n')
	}
	for _, name := range slices.Sorted(maps.Keys(e.IgnoredOverrides)) {
		fmt.Fprintf(&b, "The override of gate %s is not followed: %s.\n", name, e.IgnoredOverrides[name])
	}
	for _, what := range e.Unread {
		fmt.Fprintf(&b, "Not known: %s.\n", what)
	}
	return b.String()
}

// write writes one gate: a line that says how it stands, and a row for each thing
// that there is to say.
func (e *GateExplanation) write(b *strings.Builder, m marks, now time.Time) {
	fmt.Fprintf(b, "\n%s: %s\n", e.Gate, e.stands(now))
	rows := newRows(b)
	row := func(label, text string) {
		if text != "" {
			rows.row(label, text)
		}
	}
	row("taint", e.Taint)
	if len(e.Signals) > 0 {
		row(e.rule())
	}
	for _, s := range e.Signals {
		row(m[s.State]+" "+s.Name, fmt.Sprintf("%s (%s)%s", s.Message, s.Reason, lasting(", for ", s.Since, now)))
	}
	if e.Obstacle != nil {
		row("blocked", e.Obstacle.Message)
	}
	if !e.ClosesBy.IsZero() {
		row("closes", "by "+at(e.ClosesBy)+" at the latest, unless its signals hold again")
	}
	row("deadline", e.deadline(now))
	row("override", e.overridden())
	if e.Contended {
		row("contended", "another writer keeps undoing the taint: the gate's condition Contended names it")
	}
	row("not in force", e.NotInForce)
	row("next", e.Next)
	rows.flush()
}

// stands says how the gate stands on the node.
func (e *GateExplanation) stands(now time.Time) string {
	state := map[string]string{v1alpha1.StateClosed: "closed", v1alpha1.StateOpen: "open", StateNone: "not a member"}
	because := closedBecause
	if e.State == v1alpha1.StateOpen && e.Becomes == "" || e.State == v1alpha1.StateClosed && e.Becomes != "" || e.Becomes == v1alpha1.StateOpen {
		because = openedBecause
	}
	text := state[e.State]
	switch {
	case e.DryRun && e.State == StateNone:
		text = "would not be a member (dry run)"
	case e.DryRun:
		text = "would be " + text + " (dry run)"
	case e.Becomes != "":
		text += lasting(" for ", e.Since, now) + ", and about to be " + strings.Replace(state[e.Becomes], "not a member", "let go", 1)
	default:
		text += lasting(" for ", e.Since, now)
	}
	if e.Reason != "" && because[e.Reason] != "" {
		text += fmt.Sprintf(", because %s (%s)", because[e.Reason], e.Reason)
	}
	return text
}

// rule says what the gate's signals decide.
func (e *GateExplanation) rule() (label, text string) {
	if e.CloseWhen {
		return "closed", "while all of these hold:"
	}
	return "opens", "when all of these hold:"
}

func (e *GateExplanation) deadline(now time.Time) string {
	switch {
	case e.Overdue:
		return "has passed"
	case e.Deadline.IsZero():
		return ""
	}
	return "passes in " + duration.HumanDuration(e.Deadline.Sub(now))
}

func (e *GateExplanation) overridden() string {
	o := e.Override
	if o == nil {
		return ""
	}
	text := fmt.Sprintf("a person has it %s until %s: %q; by itself it would be %s", strings.ToLower(o.State), at(o.Until), o.Reason, strings.ToLower(o.Own))
	if o.Own == StateNone {
		text = strings.TrimSuffix(text, "be none") + "not hold the node"
	}
	if o.HeldBy != "" {
		text += "; gate " + o.HeldBy + " keeps the taint on the node"
	}
	return text
}

// lasting says for how long something has been so, if that is known.
func lasting(begin string, since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	return begin + duration.HumanDuration(max(now.Sub(since), 0))
}

func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }
