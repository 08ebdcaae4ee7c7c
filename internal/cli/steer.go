// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
)

// steering is what open, close and reset have in common: a person's word for a gate
// on some nodes, which is an override or the end of one.
type steering struct {
	output
	dryRun
	selector, gate string
	// state is what the gate is to be; empty to end an override.
	state  string
	last   span
	reason string
}

func (f *steering) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.gate, "gate", "", "the gate (required)")
	flags.StringVarP(&f.selector, "selector", "l", "", "the nodes that this label selector selects")
	f.dryRun.addFlags(flags)
	f.output.addFlags(flags, formatName)
}

func (f *steering) addOverrideFlags(flags *pflag.FlagSet) {
	flags.Var(&f.last, "for", "how long, such as 45m or 2h; at most 168h")
	flags.StringVar(&f.reason, "reason", "", "why, in 1 to 256 characters: it stands on the node and in the log")
}

// check refuses what cannot be meant, before anything is asked.
func (f *steering) check(args []string) error {
	if f.gate == "" {
		return errors.New("say which gate, by --gate")
	}
	if (len(args) > 0) == (f.selector != "") {
		return errors.New("say which nodes: by name, or by -l")
	}
	if _, err := labels.Parse(f.selector); err != nil {
		return fmt.Errorf("-l %q is no label selector: %w", f.selector, err)
	}
	if err := f.dryRun.check(); err != nil {
		return err
	}
	return f.output.check()
}

// checkOverride refuses an override that the API server or the controller would.
func (f *steering) checkOverride() error {
	switch {
	case f.last == 0:
		return errors.New("say for how long, by --for (such as --for=1h)")
	case f.reason == "":
		return errors.New("say why, by --reason")
	}
	// What is wrong with the text, whatever node it is for, and ends when it ends.
	_, err := gate.ParseOverride(gate.Override{State: f.state, Until: time.Now().Add(time.Duration(f.last)), Reason: f.reason, UID: "uid"}.String())
	if err != nil {
		return fmt.Errorf("--reason: %w", err)
	}
	return nil
}

// span is for how long an override lasts.
type span time.Duration

var _ pflag.Value = (*span)(nil)

func (s *span) String() string {
	if *s == 0 {
		return ""
	}
	return time.Duration(*s).String()
}
func (s *span) Type() string { return "duration" }

func (s *span) Set(text string) error {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil && strings.Trim(text, "0123456789.") == "" && text != "":
		return fmt.Errorf("it has no unit: write %ss, %sm or %sh", text, text, text)
	case err != nil:
		return errors.New("it is no duration: write one such as 45m or 2h")
	case d < time.Second:
		return errors.New("it is less than a second")
	case d > gate.OverrideMax:
		return fmt.Errorf("it is more than %d days (%dh)", gate.OverrideMax/(24*time.Hour), gate.OverrideMax/time.Hour)
	}
	*s = span(d)
	return nil
}

// steerer does it.
type steerer struct {
	*steering
	reader *cluster.Reader
	hand   *cluster.Hand
	sight  *sight
	leader Controller
}

func (f *steering) run(ctx context.Context, c *connection, args []string) error {
	config, err := c.config()
	if err != nil {
		return err
	}
	s := &steerer{steering: f}
	if s.reader, err = cluster.NewReader(config); err != nil {
		return err
	}
	if s.hand, err = cluster.NewHand(config, f.kind().Server()); err != nil {
		return err
	}
	nodes, err := s.read(ctx, c.installedIn(), args)
	if err != nil {
		return err
	}
	answer := &SteerResult{DryRun: f.kind(), Nodes: []SteeredNode{}}
	var failed error
	for i := range nodes {
		var n SteeredNode
		if n, failed = s.steer(ctx, &nodes[i]); failed != nil {
			break
		}
		for _, w := range n.Warnings {
			fmt.Fprintf(c.streams.ErrOut, "warning: node %s: %s\n", n.Node, w)
		}
		answer.Nodes = append(answer.Nodes, n)
	}
	if failed != nil && len(nodes) > 1 {
		failed = fmt.Errorf("%d of %d nodes are done, and then: %w", len(answer.Nodes), len(nodes), failed)
	}
	if len(answer.Nodes) > 0 {
		failed = errors.Join(failed, f.print(c.streams.Out, answer, func() string { return answer.text(f.format) }))
	}
	return failed
}

// read reads the nodes, the gates and the controller's lease, and refuses nodes and
// gates that there are not before anything is changed.
func (s *steerer) read(ctx context.Context, namespace string, args []string) ([]corev1.Node, error) {
	var declared []v1alpha1.NodeGate
	var nodes []corev1.Node
	var installed bool
	var gatesErr, nodesErr error
	together(
		func() { declared, installed, gatesErr = declaredGates(ctx, s.reader) },
		func() { nodes, nodesErr = s.readNodes(ctx, args) },
		func() { s.leader = leader(ctx, s.reader, namespace) },
	)
	switch { // one clear line, also where nobody answers
	case nodesErr != nil:
		return nil, nodesErr
	case gatesErr != nil:
		return nil, gatesErr
	}
	s.sight = compileBlind(declared)
	if s.sight.gate(s.gate) != nil {
		return nodes, nil
	}
	known := namesOf(declared)
	for i := range nodes {
		_, recorded := nodes[i].Annotations[v1alpha1.RecordAnnotationPrefix+s.gate]
		_, overridden := nodes[i].Annotations[v1alpha1.OverrideAnnotationPrefix+s.gate]
		if recorded || overridden && s.state == "" {
			return nodes, nil
		}
		for key := range nodes[i].Annotations {
			if name, isRecord := strings.CutPrefix(key, v1alpha1.RecordAnnotationPrefix); isRecord {
				known = append(known, name)
			}
		}
	}
	if !installed && len(known) == 0 {
		return nil, fmt.Errorf("%w, and the nodes have no record of one", errNotInstalled)
	}
	slices.Sort(known)
	return nil, noSuchGate(s.gate, slices.Compact(known))
}

func (s *steerer) readNodes(ctx context.Context, args []string) ([]corev1.Node, error) {
	if s.selector != "" {
		nodes, err := s.reader.Nodes(ctx, s.selector)
		switch {
		case err != nil:
			return nil, unanswered(err)
		case len(nodes) == 0:
			return nil, fmt.Errorf("-l %q selects no node", s.selector)
		}
		return nodes, nil
	}
	names, err := nodesOf(args)
	if err != nil {
		return nil, err
	}
	var nodes []corev1.Node
	for _, name := range names {
		node, err := readNode(ctx, s.reader, name)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, *node)
	}
	return nodes, nil
}

// tries bounds how often a node is looked at anew because somebody else has
// changed the same thing.
const tries = 5

// steer has one node be as wanted.
func (s *steerer) steer(ctx context.Context, node *corev1.Node) (SteeredNode, error) {
	uid := node.UID
	for try := 1; ; try++ {
		n, change, err := s.plan(node)
		if err != nil {
			return n, fmt.Errorf("node %s: %w", node.Name, err)
		}
		if s.client() || !n.Changed {
			return n, nil
		}
		err = change(ctx)
		switch {
		case err == nil:
			return n, nil
		case !errors.Is(err, cluster.ErrConflict) && !errors.Is(err, cluster.ErrNoTaint) || try == tries:
			return n, unanswered(err)
		}
		if node, err = s.reader.Node(ctx, node.Name); err != nil {
			return n, unanswered(err)
		}
		if node.UID != uid {
			return n, fmt.Errorf("node %s has been deleted, and there is another of its name now", node.Name)
		}
	}
}

func newReset(c *connection) *cobra.Command {
	var f steering
	command := &cobra.Command{
		Use:   "reset (NODE... | -l SELECTOR) --gate GATE",
		Short: "End what a person has a gate be on nodes",
		Long: "End the override of a gate on nodes, before its time: the gate is again what its signals say. A node on which\n" +
			"it is not overridden stays as it is.\n\n" + steerRights,
		Example:           "  kubectl gate reset ip-10-0-3-17 --gate cilium\n  kubectl gate reset -l pool=gpu --gate driver --dry-run=server",
		ValidArgsFunction: c.nodeNames,
		Args:              func(_ *cobra.Command, args []string) error { return f.check(args) },
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), c, args) },
	}
	f.addFlags(command.Flags())
	return command
}

func newClose(c *connection) *cobra.Command {
	f := steering{state: v1alpha1.StateClosed}
	command := &cobra.Command{
		Use:   "close (NODE... | -l SELECTOR) --gate GATE --for DURATION --reason TEXT",
		Short: "Keep a gate closed on nodes for a time",
		Long: "Keep a gate closed on nodes for a time, whatever its signals say. The taint of a NoExecute gate evicts pods.\n" +
			"At the end of the time, or with 'reset', the gate is again what its signals say. It is written as an override\n" +
			"(docs/guides/overrides.md), for this very Node and no later one of its name. An override that there is already\n" +
			"is replaced.\n\n" + steerRights,
		Example:           "  kubectl gate close ip-10-0-3-17 --gate disk --for 4h --reason 'ticket 4711: disk is replaced'",
		ValidArgsFunction: c.nodeNames,
		Args: func(_ *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			return f.checkOverride()
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), c, args) },
	}
	f.addFlags(command.Flags())
	f.addOverrideFlags(command.Flags())
	return command
}

func newOpen(c *connection) *cobra.Command {
	f := steering{state: v1alpha1.StateOpen}
	command := &cobra.Command{
		Use:   "open (NODE... | -l SELECTOR) --gate GATE [--for DURATION --reason TEXT]",
		Short: "Open a gate on nodes for a time, or one that waits for a person",
		Long: "Open a gate on nodes for a time, whatever its signals say. At the end of the time, or with 'reset', the gate is\n" +
			"again what its signals say. It is written as an override (docs/guides/overrides.md), for this very Node and no\n" +
			"later one of its name. An override that there is already is replaced.\n\n" +
			"A gate with 'reopen: Manual' waits for a person to take its taint off. Without --for, that is done, and the gate\n" +
			"is open until its signals hold anew. With --for, it is overridden like any other, and closed again afterwards.\n\n" + steerRights,
		Example: "  kubectl gate open ip-10-0-3-17 --gate cilium --for 1h --reason 'ticket 4711: look at it under load'\n" +
			"  kubectl gate open ip-10-0-3-17 --gate repair   # reopen: Manual",
		ValidArgsFunction: c.nodeNames,
		Args: func(_ *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			if f.last == 0 && f.reason == "" {
				return nil // for a gate that waits for a person
			}
			return f.checkOverride()
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), c, args) },
	}
	f.addFlags(command.Flags())
	f.addOverrideFlags(command.Flags())
	return command
}

// steerRights is what all of them take, and how they end.
const steerRights = "It takes the rights to get and patch nodes (with -l, to list them), to list nodegates.nodegate.dev, and the verb\n" +
	"'override' on nodegates.nodegate.dev, unless only a taint is taken off. To tell whether a controller follows, the\n" +
	"Lease nodegate is read in nodegate's namespace (--namespace, or else " + v1alpha1.DefaultNamespace + "), if that is allowed.\n\n" +
	"Nodes are changed one after the other, by one patch each, up to the first that fails; nothing is changed if a node\n" +
	"or the gate does not exist. What would have no effect is warned of on standard error, and done all the same.\n\n" +
	"The exit status is 0 if it is done, and 2 if it is not, or not on all nodes."
