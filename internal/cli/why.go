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
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
)

func newWhy(c *connection) *cobra.Command {
	var o output
	command := &cobra.Command{
		Use:   "why NODE",
		Short: "Explain why a node is held, or is not",
		Long: "Explain how each gate stands on a node: since when and why, what its signals say, what keeps it from\n" +
			"opening, and what to do next. Of a gate in DryRun: what it would do if it were switched to Enforce now.\n\n" +
			"It is decided as the controller decides, from what may be read with your own rights: get of the node, list of\n" +
			"nodegates.nodegate.dev and, where a gate of the node looks at them, list of pods, daemonsets and\n" +
			"resourceslices, get of csinodes, and list of nodes if the node is silent. What may not be read is unknown,\n" +
			"and told. Nothing is changed.\n\n" +
			"The exit status is 0 if no gate holds the node, 1 if one does or is just about to, and 2 if that could not be\n" +
			"found out. A gate in DryRun holds nothing.",
		Example:           "  kubectl gate why ip-10-0-3-17\n  kubectl gate why ip-10-0-3-17 -o json",
		ValidArgsFunction: c.oneNode,
		Args:              takesOneNode(&o),
		RunE: func(cmd *cobra.Command, args []string) error {
			reader, err := c.reader()
			if err != nil {
				return err
			}
			s, err := lookAt(cmd.Context(), reader, args[0])
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

// sight is all that an explanation rests on.
type sight struct {
	gates []gate.Gate
	// refused says, by name, why gates are not in force.
	refused map[string]string
	facts   gate.Facts
	// gaps are what could not be read.
	gaps     []cluster.Gap
	decision gate.Decision
	now      time.Time
}

// lookAt reads what a decision about the node of an argument rests on, and decides.
func lookAt(ctx context.Context, reader *cluster.Reader, arg string) (*sight, error) {
	names, err := nodesOf([]string{arg})
	if err != nil {
		return nil, err
	}
	var declared []v1alpha1.NodeGate
	var installed bool
	var node *corev1.Node
	var gatesErr error
	together(
		func() { declared, installed, gatesErr = declaredGates(ctx, reader) },
		func() { node, err = readNode(ctx, reader, names[0]) },
	)
	switch {
	case err != nil:
		return nil, err
	case gatesErr != nil:
		return nil, gatesErr
	case !installed && !isRecorded(node):
		return nil, fmt.Errorf("%w, and the node has no record of one", errNotInstalled)
	}
	s := compile(declared)
	s.now = time.Now()
	s.facts, s.gaps = reader.Look(ctx, node, func(sets *gate.DaemonSets) gate.Needs { return s.needs(node, sets) })
	s.facts.Transient.GateKeys = s.keys()
	s.decide(ctx, reader)
	return s, nil
}

// decide decides, and once more with all pods of the node if that is wanted.
func (s *sight) decide(ctx context.Context, reader *cluster.Reader) {
	s.decision = gate.Decide(s.gates, &s.facts, s.now)
	wanted := func(v gate.Verdict) bool { return v.Wants == gate.WantPods }
	if !slices.ContainsFunc(s.decision.Verdicts, wanted) {
		return
	}
	pods, err := reader.AllPods(ctx, s.facts.Node.Name)
	if err != nil {
		s.gaps = append(s.gaps, cluster.Gap{Err: err})
		return
	}
	s.facts.AllPods = pods
	s.decision = gate.Decide(s.gates, &s.facts, s.now)
}

// compile compiles the gates. Which of them are in force is up to the controller,
// too, which knows the keys that are allowed: what it says of them is in their
// status.
func compile(declared []v1alpha1.NodeGate) *sight {
	s := &sight{refused: make(map[string]string)}
	for i := range declared {
		g, err := signal.Compile(&declared[i], v1alpha1.SourceCRD)
		if err != nil {
			s.refused[g.Name] = err.Error()
		}
		s.gates = append(s.gates, g)
	}
	slices.SortFunc(s.gates, func(a, b gate.Gate) int { return cmp.Compare(a.Name, b.Name) })
	for name, a := range gate.Accept(s.gates, gate.KeyPolicy{}) {
		if !a.Accepted && s.refused[name] == "" {
			s.refused[name] = a.Message
		}
	}
	for i := range declared {
		ng := &declared[i]
		c := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionAccepted)
		if c != nil && c.Status == metav1.ConditionFalse && c.ObservedGeneration == ng.Generation {
			s.refused[ng.Name] = c.Message
		}
	}
	for i := range s.gates {
		g := &s.gates[i]
		g.Accepted = s.refused[g.Name] == ""
	}
	return s
}

// gate returns a gate by name, or nil.
func (s *sight) gate(name string) *gate.Gate {
	i, found := slices.BinarySearchFunc(s.gates, name, func(g gate.Gate, name string) int { return cmp.Compare(g.Name, name) })
	if !found {
		return nil
	}
	return &s.gates[i]
}

// keys are the taint keys of all gates but those in dry run.
func (s *sight) keys() map[string]bool {
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

// needs is what the gates that concern the node need.
func (s *sight) needs(node *corev1.Node, sets *gate.DaemonSets) gate.Needs {
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

// isRecorded tells whether a gate has left a record on the node.
func isRecorded(node *corev1.Node) bool {
	for key := range node.Annotations {
		if strings.HasPrefix(key, v1alpha1.RecordAnnotationPrefix) {
			return true
		}
	}
	return false
}
