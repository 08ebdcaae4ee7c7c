// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/signal"
)

func newWhy(c *connection) *cobra.Command {
	var o output
	command := &cobra.Command{
		Use:   "why NODE",
		Short: "Explain which gates hold a node and why",
		Long: "Explain the state of each gate on a node: since when and why the gate is in this state, what its signals report,\n" +
			"what keeps it from opening, and what to do next. For a gate in DryRun, the output shows what the gate would do if\n" +
			"its mode were switched to Enforce now.\n\n" +
			"The decision is that of the controller, made from what you have permission to read: get the node; list\n" +
			"nodegates.nodegate.dev; where a gate of the node depends on them, list pods, daemonsets and resourceslices and\n" +
			"get csinodes; if the node is unreachable, list nodes. What cannot be read is unknown, and the output lists it.\n" +
			"Nothing is changed.\n\n" +
			"The exit status is 0 if no gate holds the node, 1 if a gate holds it or is about to, and 2 if this could not be\n" +
			"determined. A gate in DryRun holds nothing.",
		Example:           "  kubectl gate why ip-10-0-3-17\n  kubectl gate why ip-10-0-3-17 -o json",
		ValidArgsFunction: c.oneNode,
		Args:              oneNodeArgument(&o),
		RunE: func(cmd *cobra.Command, args []string) error {
			reader, err := c.reader()
			if err != nil {
				return err
			}
			s, err := takeSnapshot(cmd.Context(), reader, args[0])
			if err != nil {
				return err
			}
			answer := s.explain()
			if err := o.print(c.streams.Out, answer, func() string { return answer.text(marksFor(c.streams.Out)) }); err != nil {
				return err
			}
			if answer.Held {
				return errNo
			}
			return nil
		},
	}
	o.addFlags(command.Flags())
	return command
}

// snapshot holds everything that an explanation is based on.
type snapshot struct {
	gates []gate.Gate
	// rejected contains the reason why a gate is not in force, by gate name.
	rejected map[string]string
	// plainOptOut is the result of the function plainOptOut.
	plainOptOut bool
	facts       gate.Facts
	// gaps are the read errors.
	gaps     []read.Error
	decision gate.Decision
	now      time.Time
}

// takeSnapshot reads everything that a decision about a node depends on, and decides.
func takeSnapshot(ctx context.Context, reader *read.Reader, arg string) (*snapshot, error) {
	names, err := parseNodeNames([]string{arg})
	if err != nil {
		return nil, err
	}
	var declared []v1alpha1.NodeGate
	var installed bool
	var node *corev1.Node
	var gatesErr error
	concurrently(
		func() { declared, installed, gatesErr = declaredGates(ctx, reader) },
		func() { node, err = readNode(ctx, reader, names[0]) },
	)
	switch {
	case err != nil:
		return nil, err
	case gatesErr != nil:
		return nil, gatesErr
	case !installed && !isRecorded(node):
		return nil, fmt.Errorf("%w, and the node has no gate record", errNotInstalled)
	}
	s := compile(declared)
	s.now = time.Now()
	s.facts, s.gaps = reader.Snapshot(ctx, node, func(sets *gate.DaemonSets) gate.Needs { return s.needs(node, sets) })
	s.facts.Transient.GateKeys = s.keys()
	s.decide(ctx, reader)
	return s, nil
}

// decide sets the decision. If the decision requires all pods of the node, decide
// lists them and decides again.
func (s *snapshot) decide(ctx context.Context, reader *read.Reader) {
	s.decision = gate.Decide(s.gates, &s.facts, s.now)
	wanted := func(v gate.Verdict) bool { return v.Wants == gate.WantPods }
	if !slices.ContainsFunc(s.decision.Verdicts, wanted) {
		return
	}
	pods, err := reader.AllPods(ctx, s.facts.Node.Name)
	if err != nil {
		s.gaps = append(s.gaps, read.Error{Err: err})
		return
	}
	s.facts.AllPods = pods
	s.decision = gate.Decide(s.gates, &s.facts, s.now)
}

// compile compiles the gates. Only the controller can determine which gates are in
// force, because it knows the allowed taint keys. compile takes its result from the
// gates' status.
func compile(declared []v1alpha1.NodeGate) *snapshot {
	s := &snapshot{rejected: make(map[string]string), plainOptOut: plainOptOut(declared)}
	for i := range declared {
		g, err := signal.Compile(&declared[i], v1alpha1.SourceCRD)
		if err != nil {
			s.rejected[g.Name] = err.Error()
		}
		s.gates = append(s.gates, g)
	}
	slices.SortFunc(s.gates, func(a, b gate.Gate) int { return cmp.Compare(a.Name, b.Name) })
	for name, a := range gate.Accept(s.gates, gate.KeyPolicy{}) {
		if !a.Accepted && s.rejected[name] == "" {
			s.rejected[name] = a.Message
		}
	}
	for i := range declared {
		ng := &declared[i]
		c := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionAccepted)
		if c != nil && c.Status == metav1.ConditionFalse && c.ObservedGeneration == ng.Generation {
			s.rejected[ng.Name] = c.Message
		}
	}
	for i := range s.gates {
		g := &s.gates[i]
		g.Accepted, g.PlainOptOut = s.rejected[g.Name] == "", s.plainOptOut
	}
	return s
}

// gate returns the gate with the given name, or nil.
func (s *snapshot) gate(name string) *gate.Gate {
	i, found := slices.BinarySearchFunc(s.gates, name, func(g gate.Gate, name string) int { return cmp.Compare(g.Name, name) })
	if !found {
		return nil
	}
	return &s.gates[i]
}

// keys returns the taint keys of all gates except those in DryRun.
func (s *snapshot) keys() map[string]bool {
	keys := make(map[string]bool, len(s.gates))
	for i := range s.gates {
		if s.gates[i].Mode == v1alpha1.ModeDryRun {
			continue
		}
		for _, t := range s.gates[i].Taints() {
			keys[t.Key] = true
		}
	}
	return keys
}

// needs returns the combined needs of the gates that select the node or have a record
// on it.
func (s *snapshot) needs(node *corev1.Node, sets *gate.DaemonSets) gate.Needs {
	var all gate.Needs
	for i := range s.gates {
		g := &s.gates[i]
		_, recorded := node.Annotations[v1alpha1.RecordAnnotationPrefix+g.Name]
		if recorded || g.Selector.Matches(labels.Set(node.Labels)) {
			all.Add(g.Needs(sets))
		}
	}
	return all
}

// isRecorded reports whether any gate has a record on the node.
func isRecorded(node *corev1.Node) bool {
	for key := range node.Annotations {
		if strings.HasPrefix(key, v1alpha1.RecordAnnotationPrefix) {
			return true
		}
	}
	return false
}
