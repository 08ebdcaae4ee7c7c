// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Source is the configuration of another tool.
type Source struct {
	// Name is the name of the input in findings and comments, such as the path of a file.
	Name string
	// Data is the content.
	Data []byte
}

// Severity is the severity of a finding.
type Severity string

const (
	// Note means that something differs, but that the meaning is preserved.
	Note Severity = "note"
	// Error means that the meaning would be lost. An input with an error results in no
	// gates.
	Error Severity = "error"
)

// Finding is a message about an input.
type Finding struct {
	// Name is the name of the input.
	Name string
	// Line is the line in the input, or 0 for the input as a whole.
	Line     int
	Severity Severity
	Message  string
}

// String returns the finding in the form of compiler messages.
func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s: %s", f.Name, f.Severity, f.Message)
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.Name, f.Line, f.Severity, f.Message)
}

// Gate is a NodeGate that results from a part of the input.
type Gate struct {
	// NodeGate has a name and a spec. Defaults are not filled in.
	NodeGate v1alpha1.NodeGate
	// Line is the line of the input in which it is declared.
	Line int
	// notes are the findings about this gate.
	notes []string
	// lines contains the lines of the input that determine fields, by field path.
	lines map[string]int
}

// Result is the result of a conversion.
type Result struct {
	// Gates conform to the API's rules. Empty if a finding is an error.
	Gates []Gate
	// Findings are sorted by line.
	Findings []Finding

	tool, name string
	notes      []string
	// all contains the gates even if there are errors.
	all []Gate
}

// Errors returns the number of findings that are errors.
func (r *Result) Errors() int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == Error {
			n++
		}
	}
	return n
}

// converter accumulates the result of a conversion.
type converter struct {
	tool     string
	source   Source
	gates    []Gate
	findings []Finding
	// notes are about the input as a whole.
	notes []string
	names names
}

func newConverter(tool string, source Source) *converter {
	return &converter{tool: tool, source: source, names: names{}}
}

func (c *converter) addFinding(line int, severity Severity, message string) {
	c.findings = append(c.findings, Finding{Name: c.source.Name, Line: line, Severity: severity, Message: message})
}

// errorf adds an error about something that cannot be preserved.
func (c *converter) errorf(line int, format string, args ...any) {
	c.addFinding(line, Error, fmt.Sprintf(format, args...))
}

// notef adds a note about a line of the input.
func (c *converter) notef(line int, format string, args ...any) {
	c.addFinding(line, Note, fmt.Sprintf(format, args...))
}

// noteInput adds a note about the input as a whole, unless it has been added already.
func (c *converter) noteInput(message string) {
	if slices.Contains(c.notes, message) {
		return
	}
	c.notes = append(c.notes, message)
	c.addFinding(0, Note, message)
}

// noteGate adds a note about one gate.
func (c *converter) noteGate(g *Gate, line int, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	g.notes = append(g.notes, message)
	c.addFinding(line, Note, message)
}

// add adds a gate with a unique name that resembles the given one. The pointer is valid
// until the next call.
func (c *converter) add(line int, name string, spec v1alpha1.NodeGateSpec) *Gate {
	g := Gate{Line: line}
	g.NodeGate.Name = c.names.unique(name)
	g.NodeGate.Spec = spec
	c.acknowledge(&g.NodeGate.Spec)
	if spec.ExistingNodes == v1alpha1.ExistingClose {
		c.noteInput(fmt.Sprintf(existingNote, c.tool))
	}
	c.gates = append(c.gates, g)
	return &c.gates[len(c.gates)-1]
}

// acknowledge sets the acknowledgements that the other tool does not require.
func (c *converter) acknowledge(spec *v1alpha1.NodeGateSpec) {
	if spec.Taint.Effect == corev1.TaintEffectNoExecute {
		spec.Acknowledge = append(spec.Acknowledge, v1alpha1.AcknowledgePodEviction)
		c.noteInput("NoExecute evicts running pods regardless of disruption budgets; acknowledge: [PodEviction] " +
			"confirms this, which " + c.tool + " does not require")
	}
	if spec.Taint.Key == v1alpha1.TaintOutOfService {
		spec.Acknowledge = append(spec.Acknowledge, v1alpha1.AcknowledgeVolumeDetach)
		c.noteInput(v1alpha1.TaintOutOfService + " detaches volumes, which destroys data if the machine is still running; " +
			"acknowledge: [VolumeDetach] confirms this. nodegate adds the taint only after the node has been unreachable (Ready " +
			"is Unknown) for a minute or its cloud has reported that it is shut down, and removes it as soon as the node reports " +
			"again; " + c.tool + " adds it as soon as the conditions match, and does not remove it")
	}
}

// result validates the gates and returns the result.
func (c *converter) result() *Result {
	c.checkValues()
	if c.errors() == 0 {
		c.checkRules()
	}
	slices.SortStableFunc(c.findings, func(a, b Finding) int { return cmp.Compare(a.Line, b.Line) })
	r := &Result{Gates: c.gates, Findings: c.findings, tool: c.tool, name: c.source.Name, notes: c.notes, all: c.gates}
	if r.Errors() > 0 {
		r.Gates = nil
	}
	return r
}

func (c *converter) errors() int { return (&Result{Findings: c.findings}).Errors() }

// checkValues adds errors for gates whose taints differ in their value only: a node cannot
// carry both taints, and nodegate accepts the older gate only.
func (c *converter) checkValues() {
	type place struct {
		key    string
		effect corev1.TaintEffect
	}
	first := map[place]*Gate{}
	for i := range c.gates {
		g := &c.gates[i]
		t := g.NodeGate.Spec.Taint
		at := place{t.Key, t.Effect}
		if other, taken := first[at]; !taken {
			first[at] = g
		} else if value := other.NodeGate.Spec.Taint.Value; value != t.Value {
			c.errorf(g.Line, "the taint %s:%s has the value %q here and %q in line %d, but a node can carry only one of them, "+
				"and nodegate accepts only one of the gates: use one value, or two keys", t.Key, t.Effect, t.Value, value, other.Line)
		}
	}
}

// unbudgeted returns a budget that allows all nodes to be closed at a time, as in other
// tools.
func unbudgeted() v1alpha1.Budget {
	return v1alpha1.Budget{MaxReclosed: new(intstr.FromString("100%"))}
}

// undamped returns timing with which an OnRegression gate closes immediately, as in other
// tools.
func undamped() v1alpha1.Timing {
	return v1alpha1.Timing{CloseAfterSeconds: new(int32(0)), RolloutGraceSeconds: new(int32(0))}
}

const (
	existingNote = "existing nodes on which a signal does not hold are closed as soon as the gate is in force (existingNodes: Close), as " +
		"%s taints them; 'kubectl gate preview -f FILE' names these nodes; remove existingNodes to leave existing nodes that do " +
		"not carry the taint as they are"
	unbudgetedNote = "any number of nodes may be closed at a time (maxReclosed: 100%%), as with %s; " +
		"remove budget to use the default of 20%% of a zone, which limits the effect of a mistake"
	undampedNote = "the gate closes as soon as a signal stops holding, as with %s, so each rollout of a daemon " +
		"closes it on every node; remove timing.closeAfterSeconds and timing.rolloutGraceSeconds to use the defaults " +
		"(120 and 600), which prevent this"
	birthNote = "the gate is closed from a node's creation; %s adds the taint some time later"
)

// list joins items with commas and "and".
func list(items []string) string {
	if len(items) < 2 {
		return strings.Join(items, "")
	}
	return strings.Join(items[:len(items)-1], ", ") + " and " + items[len(items)-1]
}
