// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/kube/read"
	"github.com/nodegate/nodegate/internal/printer"
)

// snapshot holds the facts about one node and the decision about it.
type snapshot struct {
	gates *gateset.Set
	facts gate.Facts
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
	case !installed && len(read.NodeFacts(node).Records) == 0:
		return nil, fmt.Errorf("%w, and the node has no gate record", errNotInstalled)
	}
	s := &snapshot{gates: gateset.Reported(declared), now: reader.Now()}
	s.facts, s.gaps = reader.Snapshot(ctx, node, func(sets *gate.DaemonSets) gate.Needs { return s.gates.NeedsOn(node, sets) })
	s.facts.CompleteSources = completeSources(s.gates, installed)
	s.readGroups(ctx, reader)
	s.decide(ctx, reader)
	return s, nil
}

// completeSources returns the sources of gates that were read completely. If the API server does not
// serve NodeGates, some may exist that cannot be read.
func completeSources(gates *gateset.Set, installed bool) map[string]bool {
	if !installed {
		return nil
	}
	return gates.Sources
}

// readGroups reads the other nodes of the node's groups, which decisions about gates that
// open together depend on.
func (s *snapshot) readGroups(ctx context.Context, reader *read.Reader) {
	n := &s.facts.Node
	for i := range s.gates.Gates {
		g := &s.gates.Gates[i]
		if g.Together == nil || !g.Selects(n.Labels) || g.Together.Name(n.Labels) == "" {
			continue
		}
		group, gaps, err := readGroup(ctx, reader, s.gates, g, n, s.now)
		if err != nil {
			s.gaps = append(s.gaps, read.Error{Err: fmt.Errorf("reading the group of gate %s: %w", g.Name, err)})
			continue
		}
		s.gaps = append(s.gaps, gaps...)
		if s.facts.Groups == nil {
			s.facts.Groups = make(map[string]gate.Group)
		}
		s.facts.Groups[g.Name] = group
	}
}

// readGroup reads the other nodes of a node's group, and decides which of them are fit.
func readGroup(ctx context.Context, reader *read.Reader, gates *gateset.Set, g *gate.Gate, n *gate.Node, now time.Time) (gate.Group, []read.Error, error) {
	selection := read.NodeSelection{Labels: labels.Set{g.Together.LabelKey: g.Together.Name(n.Labels)}.String()}
	members, gaps, err := reader.SnapshotsOf(ctx, selection, g.Needs)
	if err != nil {
		return gate.Group{}, nil, err
	}
	alone := gates.Only(gate.Part{Gates: []gate.Gate{*g}})
	for i := range members {
		members[i].Part = true
	}
	alone.SetGroups(members, now)
	for i := range members {
		if members[i].Node.Name == n.Name {
			return members[i].Groups[g.Name], gaps, nil
		}
	}
	return gate.Group{}, gaps, nil // the node has left the group in between
}

// decide sets the decision. If the decision requires all pods of the node, decide
// lists them and decides again.
func (s *snapshot) decide(ctx context.Context, reader *read.Reader) {
	s.decision = s.gates.Decide(&s.facts, s.now)
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
	s.decision = s.gates.Decide(&s.facts, s.now)
}

// messages returns the messages of read errors.
func messages(gaps []read.Error) []string {
	var all []string
	for i := range gaps {
		all = append(all, printer.OneLine(gaps[i].Err))
	}
	return all
}

// concurrently runs functions concurrently and returns when all are done.
func concurrently(functions ...func()) {
	var all sync.WaitGroup
	for _, function := range functions {
		all.Go(function)
	}
	all.Wait()
}
