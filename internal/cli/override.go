// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/kube/write"
	"github.com/nodegate/nodegate/internal/status"
)

// overrideFlags holds the flags that open, close and reset have in common. They add or
// remove a manual override of a gate on nodes.
type overrideFlags struct {
	output
	dryRun
	selector, gate string
	// state is the desired state of the gate. Empty to end an override.
	state    string
	duration overrideDuration
	reason   string
}

func (f *overrideFlags) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&f.gate, "gate", "", "name of the gate (required)")
	flags.StringVarP(&f.selector, "selector", "l", "", "label selector of the nodes")
	f.dryRun.addFlags(flags)
	f.output.addFlags(flags, formatName)
}

func (f *overrideFlags) addOverrideFlags(flags *pflag.FlagSet) {
	flags.Var(&f.duration, "for", "duration of the override, such as 45m or 2h; at most 168h")
	flags.StringVar(&f.reason, "reason", "", "reason for the override, 1 to 256 characters; appears on the node and in the log")
}

// check rejects invalid flags and arguments before any request is sent.
func (f *overrideFlags) check(args []string) error {
	if f.gate == "" {
		return errors.New("--gate is required")
	}
	if (len(args) > 0) == (f.selector != "") {
		return errors.New("specify nodes either by name or with -l")
	}
	if _, err := labels.Parse(f.selector); err != nil {
		return fmt.Errorf("-l %q is not a valid label selector: %w", f.selector, err)
	}
	if err := f.dryRun.check(); err != nil {
		return err
	}
	return f.output.check()
}

// checkOverride rejects an override that the API server or the controller would
// reject.
func (f *overrideFlags) checkOverride() error {
	switch {
	case f.duration == 0:
		return errors.New("--for is required, for example --for=1h")
	case f.reason == "":
		return errors.New("--reason is required")
	}
	// This finds errors that do not depend on the node or on the exact end.
	_, err := gate.ParseOverride(gate.Override{State: f.state, Until: time.Now().Add(time.Duration(f.duration)), Reason: f.reason, UID: "uid"}.String())
	if err != nil {
		return fmt.Errorf("--reason: %w", err)
	}
	return nil
}

// overrideDuration is the duration of an override. It is a flag value.
type overrideDuration time.Duration

var _ pflag.Value = (*overrideDuration)(nil)

func (s *overrideDuration) String() string {
	if *s == 0 {
		return ""
	}
	return time.Duration(*s).String()
}
func (s *overrideDuration) Type() string { return "duration" }

func (s *overrideDuration) Set(text string) error {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil && strings.Trim(text, "0123456789.") == "" && text != "":
		return fmt.Errorf("missing unit: use %ss, %sm or %sh", text, text, text)
	case err != nil:
		return errors.New("not a duration: use a value such as 45m or 2h")
	case d < time.Second:
		return errors.New("must be at least 1s")
	case d > gate.OverrideMax:
		return fmt.Errorf("must be at most %d days (%dh)", gate.OverrideMax/(24*time.Hour), gate.OverrideMax/time.Hour)
	}
	*s = overrideDuration(d)
	return nil
}

// overrider changes nodes according to the flags.
type overrider struct {
	*overrideFlags
	reader    *read.Reader
	overrides *write.OverrideWriter
	// gates are without signals.
	gates  *gateset.Set
	now    time.Time
	leader status.Controller
	// leaseForbidden is true if the user has no permission to get the Lease, which is optional.
	leaseForbidden bool
}

func (f *overrideFlags) run(ctx context.Context, c *connection, args []string) error {
	config, err := c.config()
	if err != nil {
		return err
	}
	s := &overrider{overrideFlags: f}
	if s.reader, err = read.NewReader(config); err != nil {
		return err
	}
	if s.overrides, err = write.NewOverrideWriter(config, f.kind().Server()); err != nil {
		return err
	}
	nodes, err := s.read(ctx, c.installNamespace(), args)
	if err != nil {
		return err
	}
	// A reader of the warnings that exits early must not end the command half-way. (After
	// Ignore, Reset would change nothing.)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	answer := &OverrideResult{DryRun: f.kind(), Nodes: []OverriddenNode{}}
	var failed error
	for i := range nodes {
		var n OverriddenNode
		if n, failed = s.change(ctx, &nodes[i]); failed != nil {
			break
		}
		for _, w := range n.Warnings {
			fmt.Fprintf(c.streams.ErrOut, "warning: node %s: %s\n", n.Node, gate.Printable(w))
		}
		answer.Nodes = append(answer.Nodes, n)
	}
	signal.Reset(syscall.SIGPIPE)
	if failed != nil && len(nodes) > 1 {
		failed = fmt.Errorf("%d of %d nodes done: %w", len(answer.Nodes), len(nodes), failed)
	}
	if len(answer.Nodes) > 0 {
		failed = errors.Join(failed, f.print(context.WithoutCancel(ctx), c.streams.Out, answer, func() string { return answer.text(f.format) }))
	}
	return failed
}

// read reads the nodes, the gates and the controller's Lease. It returns an error for
// nodes and gates that do not exist, before anything is changed.
func (s *overrider) read(ctx context.Context, namespace string, args []string) ([]corev1.Node, error) {
	var declared []v1alpha1.NodeGate
	var nodes []corev1.Node
	var installed bool
	var gatesErr, nodesErr error
	var leader leadership
	concurrently(
		func() { declared, installed, gatesErr = declaredGates(ctx, s.reader) },
		func() { nodes, nodesErr = s.readNodes(ctx, args) },
		func() { leader = readLeadership(ctx, s.reader, namespace) },
	)
	switch { // one error is enough, also if the API server is unreachable
	case nodesErr != nil:
		return nil, nodesErr
	case gatesErr != nil:
		return nil, gatesErr
	}
	s.gates, s.leader = gateset.Reported(declared).WithoutSignals(), leader.controller(declared, s.reader.Now())
	s.leaseForbidden = apierrors.IsForbidden(leader.err)
	if s.gates.Declared[s.gate] != nil {
		return nodes, nil
	}
	return nodes, s.checkUndeclared(ctx, nodes, namesOf(declared), installed)
}

// checkUndeclared returns an error if a gate that is not declared has no record on any node. If it
// has one, it may be declared in a file, which only the controller reads.
func (s *overrider) checkUndeclared(ctx context.Context, nodes []corev1.Node, known []string, installed bool) error {
	for i := range nodes {
		if _, overridden := nodes[i].Annotations[v1alpha1.OverrideAnnotationPrefix+s.gate]; overridden && s.state == "" {
			return nil
		}
		known = slices.AppendSeq(known, maps.Keys(read.NodeFacts(&nodes[i]).Records))
	}
	var unlisted error
	if !slices.Contains(known, s.gate) {
		var others []*gate.Node
		if others, unlisted = s.reader.NodeMetadata(ctx, read.NodeSelection{}); unlisted != nil && !apierrors.IsForbidden(unlisted) {
			return describeRequestError(unlisted)
		}
		for _, n := range others {
			known = slices.AppendSeq(known, maps.Keys(n.Records))
		}
	}
	slices.Sort(known)
	switch known = slices.Compact(known); {
	case slices.Contains(known, s.gate):
		return nil
	case unlisted != nil:
		return fmt.Errorf("%w; whether it comes from a file is unknown without permission to list nodes", noSuchGate(s.gate, known))
	case !installed && len(known) == 0:
		return fmt.Errorf("%w, and the nodes have no gate records", errNotInstalled)
	}
	return noSuchGate(s.gate, known)
}

func (s *overrider) readNodes(ctx context.Context, args []string) ([]corev1.Node, error) {
	if s.selector != "" {
		nodes, err := s.reader.Nodes(ctx, s.selector)
		switch {
		case err != nil:
			return nil, describeRequestError(err)
		case len(nodes) == 0:
			return nil, fmt.Errorf("-l %q selects no nodes", s.selector)
		}
		return nodes, nil
	}
	names, err := parseNodeNames(args)
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

// maxAttempts is how often a change is tried if another writer changes the same part
// of the node meanwhile.
const maxAttempts = 5

// change changes one node. It reads the node again and retries on a conflict.
func (s *overrider) change(ctx context.Context, node *corev1.Node) (OverriddenNode, error) {
	uid := node.UID
	for attempt := 1; ; attempt++ {
		n, apply, err := s.plan(node, s.reader.Now())
		if err != nil {
			return n, fmt.Errorf("node %s: %w", node.Name, err)
		}
		if s.client() || !n.Changed {
			return n, nil
		}
		err = apply(ctx)
		switch {
		case err == nil:
			return n, nil
		case !errors.Is(err, write.ErrConflict) && !errors.Is(err, write.ErrNoTaint) || attempt == maxAttempts:
			return n, describeRequestError(err)
		}
		if node, err = s.reader.Node(ctx, node.Name); err != nil {
			return n, describeRequestError(err)
		}
		if node.UID != uid {
			return n, fmt.Errorf("node %s was deleted and created again", node.Name)
		}
	}
}

// changeHelp is the part of the help text that open, close and reset have in common.
const changeHelp = "Required permissions: get and patch nodes, and list them with -l, or if a gate from a file has no record on them; list\n" +
	"nodegates.nodegate.dev; the verb 'override' on nodegates.nodegate.dev, except for 'open' without --for. If\n" +
	"permitted, the command reads the Lease nodegate in nodegate's namespace (--namespace, default " + v1alpha1.DefaultNamespace + ") to\n" +
	"check whether a controller is running.\n\n" +
	"Nodes are changed one after the other, with one patch each, until a change fails. Nothing is changed if a node or the\n" +
	"gate does not exist. If a change has no effect, the command prints a warning to standard error and still makes it.\n\n" +
	"The exit status is 0 if all nodes were changed as requested or needed no change, and 2 otherwise."
