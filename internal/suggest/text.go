// SPDX-License-Identifier: Apache-2.0

package suggest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nodegate/nodegate/internal/preview"
	"github.com/nodegate/nodegate/internal/printer"
)

// Text returns the report as human-readable text: one block for each suggestion.
func (r *Report) Text() string {
	var b strings.Builder
	needed := 0
	for i := range r.Suggestions {
		needed += len(r.Suggestions[i].DaemonSets)
	}
	if needed == 0 {
		b.WriteString("No DaemonSet was found that pods need and for which no gate waits.\n")
	} else {
		fmt.Fprintf(&b, "Pods need, or may need, %s for which no gate waits. Nothing was changed.\n", printer.Count(needed, "DaemonSet"))
	}
	gates, tolerations := false, false
	for i := range r.Suggestions {
		s := &r.Suggestions[i]
		gates, tolerations = gates || s.hasGate(len(r.named) > 0), tolerations || slices.ContainsFunc(s.Tolerations, func(t Toleration) bool { return t.named })
		s.write(&b)
	}
	r.writeRest(&b)
	if gates {
		command := strings.Join(slices.Concat([]string{"kubectl gate suggest"}, r.named, []string{"-o gates"}), " ")
		fmt.Fprintf(&b, "\nTo print the gates:   %s\nTo check them first:  %[1]s | kubectl gate lint -f -\n", command)
	}
	if tolerations {
		b.WriteString("\nAfter you have applied gates or labels, 'kubectl gate tolerate --all' adds missing tolerations to the DaemonSets that gates wait for.\n")
	}
	return b.String()
}

// certaintyTexts describes certainties.
var certaintyTexts = map[Certainty]string{Certain: "pods need it", Likely: "pods probably need it", Possible: "pods may need it"}

func (s *Suggestion) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s (%s)\n", strings.Join(s.DaemonSets, ", "), certaintyTexts[s.Certainty])
	rows := printer.NewRows(b)
	row := rows.Row
	for _, e := range s.Why {
		row("why", e.Text)
	}
	row("use", s.useText())
	for _, text := range s.Notes {
		row("note", text)
	}
	row("taint", strings.Join(s.Taints, ", then "))
	for _, key := range s.AllowKeys {
		row("first allow", key+" in --allowed-taint-keys (Helm: allowedTaintKeys)")
	}
	for _, t := range s.grouped() {
		switch {
		case t.Command != "":
			row("then run", fmt.Sprintf("%s; it adds the toleration to DaemonSet %s, to which the API server would add it at the next update; %s", t.Command, t.DaemonSet, t.Why))
		case t.Deadlock:
			row("first tolerate", t.text())
		default:
			row("tolerate", t.text())
		}
	}
	for _, w := range s.Writers {
		row("other writer", fmt.Sprintf("%s may also write %s: %s", w.Program, w.Key, w.How))
	}
	if s.Preview == nil {
		row("preview", "unknown")
	} else {
		row("preview", previewText(s.Preview))
		if !s.Preview.InForce && len(s.AllowKeys) == 0 {
			row("  not in force", s.Preview.Message)
		}
		s.Preview.EffectRows(func(label, text string) { row("  "+label, text) })
	}
	rows.Flush()
}

// text describes how to add the toleration to the DaemonSet.
func (t *Toleration) text() string {
	return fmt.Sprintf("add {key: %s, operator: Exists} to the tolerations of DaemonSet %s; %s", t.Add.Key, t.DaemonSet, t.Why)
}

// grouped returns the missing tolerations, with one entry for all DaemonSets that lack the same
// toleration with the same consequence.
func (s *Suggestion) grouped() (out []Toleration) {
	for _, t := range s.Tolerations {
		at := slices.IndexFunc(out, func(o Toleration) bool { return o.Add == t.Add && o.Why == t.Why && o.Command == t.Command })
		if at < 0 {
			out = append(out, t)
			continue
		}
		out[at].DaemonSet += ", " + t.DaemonSet
	}
	return out
}

func (s *Suggestion) useText() string {
	switch s.Use {
	case UsePreset:
		return "preset " + s.Preset
	case UseLabel:
		namespace, name, _ := strings.Cut(s.DaemonSets[0], "/")
		return fmt.Sprintf("the label %s, for which gate %s waits: kubectl label daemonset %s --namespace %s %s",
			s.Label, s.Gate, name, namespace, strings.ReplaceAll(s.Label, ",", " "))
	}
	return "a new gate, " + s.Gate
}

// previewText summarizes what happens to existing nodes.
func previewText(g *preview.Gate) string {
	acts := 0
	for i := range g.Groups {
		if g.Groups[i].Acts() {
			acts += len(g.Groups[i].Nodes)
		}
	}
	return fmt.Sprintf("%d of the %s that the gate selects would change", acts, printer.Count(g.Selected, "existing node"))
}

// writeRest writes what needs no gate, and what is not known.
func (r *Report) writeRest(b *strings.Builder) {
	b.WriteByte('\n')
	for i := range r.Covered {
		c := &r.Covered[i]
		fmt.Fprintf(b, "Covered: DaemonSet %s by gate %s", c.DaemonSet, c.Gate)
		switch {
		case !c.InForce:
			fmt.Fprintf(b, ", which is not in force: %s", c.Message)
		case c.MissedNodes > 0:
			fmt.Fprintf(b, ", which does not select %s on which the DaemonSet can run", printer.Count(c.MissedNodes, "existing node"))
		}
		b.WriteString(".\n")
	}
	if len(r.Others) > 0 {
		fmt.Fprintf(b, "No evidence that pods need: %s.\n", strings.Join(r.Others, ", "))
	}
	if r.ComparedNodes > 0 {
		fmt.Fprintf(b, "The order of starts was compared on %s.\n", printer.Count(r.ComparedNodes, "node"))
	} else {
		b.WriteString("The order of starts was not compared: no node with known pods is younger than a day.\n")
	}
	r.writeGaps(b, "")
}

// writeGaps writes what could not be read, each in a line with a prefix.
func (r *Report) writeGaps(b *strings.Builder, prefix string) {
	for _, gap := range r.Unread {
		fmt.Fprintf(b, "%sIncomplete: %s: %s; missing: %s.\n", prefix, gap.What, gap.Error, gap.Hides)
	}
}

// hasGate reports whether Gates prints a manifest of the suggestion.
func (s *Suggestion) hasGate(all bool) bool { return s.Use != UseLabel && s.isPrinted(all) }

// isPrinted reports whether Gates prints the suggestion.
func (s *Suggestion) isPrinted(all bool) bool { return s.Certainty != Possible || all }

// Gates returns the manifests of the suggested gates, ready to apply, and what to do first and
// afterwards as comments. Suggestions that are only possible are left out, and named in a
// comment, unless all is true. What could not be read is in comments, too.
func (r *Report) Gates(all bool) string {
	var b strings.Builder
	r.writeGaps(&b, "# ")
	if len(r.Suggestions) == 0 {
		b.WriteString("# There are no gates to suggest.\n")
	}
	for i := range r.Suggestions {
		s := &r.Suggestions[i]
		daemons, need := strings.Join(s.DaemonSets, ", "), "a gate"
		if s.Use == UseLabel {
			need = fmt.Sprintf("the label %s, for which gate %s waits", s.Label, s.Gate)
		}
		if !s.isPrinted(all) {
			fmt.Fprintf(&b, "# DaemonSet %s may need %s: kubectl gate suggest %s -o gates\n", daemons, need, s.DaemonSets[0])
			continue
		}
		if s.Use == UseLabel {
			fmt.Fprintf(&b, "# DaemonSet %s needs no gate of its own: add %s.\n", daemons, need)
			s.writeSteps(&b)
			continue
		}
		b.WriteString("---\n")
		s.writeSteps(&b)
		b.WriteString(strings.TrimRight(s.Manifest, "\n") + "\n")
	}
	return b.String()
}

// writeSteps writes the notes of the suggestion, and what it requires, as comments.
func (s *Suggestion) writeSteps(b *strings.Builder) {
	for _, text := range s.Notes {
		fmt.Fprintf(b, "# Note: %s.\n", text)
	}
	for _, key := range s.AllowKeys {
		fmt.Fprintf(b, "# First: allow the taint key %s.\n", key)
	}
	for _, t := range s.grouped() {
		switch {
		case t.Command != "":
			fmt.Fprintf(b, "# Then: run '%s', which adds the toleration to DaemonSet %s; %s.\n", t.Command, t.DaemonSet, t.Why)
		case t.Deadlock:
			fmt.Fprintf(b, "# First: %s.\n", t.text())
		default:
			fmt.Fprintf(b, "# Also: %s.\n", t.text())
		}
	}
}
