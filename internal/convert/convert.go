// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Source is the configuration of another tool.
type Source struct {
	// Name stands for the input in findings and comments: the path of a file.
	Name string
	// Data is the content.
	Data []byte
}

// Severity says what a finding means for the conversion.
type Severity string

const (
	// Note tells a difference that does not lose what was meant.
	Note Severity = "note"
	// Error tells of something that was meant and would be lost. An input with an
	// error has no gates.
	Error Severity = "error"
)

// Finding is one thing to be told about an input.
type Finding struct {
	// Name is the input's.
	Name string
	// Line is where; 0 for the input as a whole.
	Line     int
	Severity Severity
	Message  string
}

// String returns the finding in the form in which compilers tell theirs.
func (f Finding) String() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s: %s", f.Name, f.Severity, f.Message)
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.Name, f.Line, f.Severity, f.Message)
}

// Gate is a NodeGate that stands for a part of the input.
type Gate struct {
	// NodeGate has a name and a spec, and no defaults filled in.
	NodeGate v1alpha1.NodeGate
	// Line is where the input declares it.
	Line int
	// notes are the findings about it.
	notes []string
	// lines are where the input asks for some of its fields, by path.
	lines map[string]int
}

// Result is what became of an input.
type Result struct {
	// Gates are accepted by the API's rules; none if a finding is an error.
	Gates []Gate
	// Findings are in the order of the input's lines.
	Findings []Finding

	tool, name string
	notes      []string
	// all are the gates, also if they are refused.
	all []Gate
}

// Errors counts the findings that are errors.
func (r *Result) Errors() int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == Error {
			n++
		}
	}
	return n
}

// converter collects what becomes of one input.
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

func (c *converter) find(line int, severity Severity, message string) {
	c.findings = append(c.findings, Finding{Name: c.source.Name, Line: line, Severity: severity, Message: message})
}

// lose tells of something that cannot be kept.
func (c *converter) lose(line int, format string, args ...any) {
	c.find(line, Error, fmt.Sprintf(format, args...))
}

// tell tells a difference that concerns the input as a whole, once.
func (c *converter) tell(message string) {
	if slices.Contains(c.notes, message) {
		return
	}
	c.notes = append(c.notes, message)
	c.find(0, Note, message)
}

// note tells a difference that concerns one gate.
func (c *converter) note(g *Gate, line int, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	g.notes = append(g.notes, message)
	c.find(line, Note, message)
}

// add adds a gate under a name like the one that is asked for. The pointer is
// good until the next call.
func (c *converter) add(line int, name string, spec v1alpha1.NodeGateSpec) *Gate {
	g := Gate{Line: line}
	g.NodeGate.Name = c.names.unique(name)
	g.NodeGate.Spec = spec
	c.acknowledge(&g.NodeGate.Spec)
	c.gates = append(c.gates, g)
	return &c.gates[len(c.gates)-1]
}

// acknowledge accepts the dangers that the other tool takes without asking.
func (c *converter) acknowledge(spec *v1alpha1.NodeGateSpec) {
	if spec.Taint.Effect == corev1.TaintEffectNoExecute {
		spec.Acknowledge = append(spec.Acknowledge, v1alpha1.AcknowledgePodEviction)
		c.tell("NoExecute evicts running pods without regard to disruption budgets; acknowledge: [PodEviction] " +
			"says that this is meant, which " + c.tool + " does not ask")
	}
	if spec.Taint.Key == v1alpha1.TaintOutOfService {
		spec.Acknowledge = append(spec.Acknowledge, v1alpha1.AcknowledgeVolumeDetach)
		c.tell(v1alpha1.TaintOutOfService + " detaches volumes, which destroys data on a machine that still runs; " +
			"acknowledge: [VolumeDetach] says that this is meant. nodegate puts the taint on only once the node has " +
			"been silent (Ready Unknown) for a minute or its cloud says that it is shut down, and lifts it as soon " +
			"as the node speaks; " + c.tool + " puts it on as soon as the conditions match, and leaves it there")
	}
}

// result checks the gates and hands everything over.
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

// checkValues refuses gates that differ only in their taint's value: a node
// cannot carry both, and nodegate accepts the older only.
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
			c.lose(g.Line, "the taint %s:%s has the value %q here and %q in line %d; a node can carry one of the two, "+
				"and nodegate accepts one such gate only: use one value, or two keys", t.Key, t.Effect, t.Value, value, other.Line)
		}
	}
}

// unbudgeted lets any number of nodes be closed at a time, as other tools do.
func unbudgeted() v1alpha1.Budget {
	return v1alpha1.Budget{MaxReclosed: ptr.To(intstr.FromString("100%"))}
}

// atOnce closes an OnRegression gate without damping, as other tools do.
func atOnce() v1alpha1.Timing {
	return v1alpha1.Timing{CloseAfterSeconds: ptr.To[int32](0), RolloutGraceSeconds: ptr.To[int32](0)}
}

const (
	tellUnbudgeted = "any number of nodes may be closed at a time (maxReclosed: 100%%), as with %s; " +
		"remove budget for the default of 20%% of a zone, which keeps a mistake small"
	tellAtOnce = "the gate closes as soon as a signal stops holding, as with %s, so that each rollout of a daemon " +
		"closes it on every node; remove timing.closeAfterSeconds and timing.rolloutGraceSeconds for the defaults " +
		"(120 and 600), which sit that out"
	tellBirth = "the gate is closed from a node's creation on; %s taints a node after it has appeared"
)

// list names things in a sentence.
func list(items []string) string {
	if len(items) < 2 {
		return strings.Join(items, "")
	}
	return strings.Join(items[:len(items)-1], ", ") + " and " + items[len(items)-1]
}
