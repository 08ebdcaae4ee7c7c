// SPDX-License-Identifier: Apache-2.0

package read

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/nodegate/nodegate/internal/gate"
)

// Error is an error of reading something that a decision requires. What could not be read
// counts as not observed.
type Error struct {
	// Err is the cause, with what was being read.
	Err error
	// hides reports whether signals with these needs are affected. It is nil if no signal
	// is.
	hides func(gate.Needs) bool
}

// Hides reports whether the error affects signals with needs n.
func (g *Error) Hides(n gate.Needs) bool { return g.hides != nil && g.hides(n) }

// Snapshot returns the facts about a node. needs returns the gates' needs, which may
// depend on the DaemonSets. Node, Zone, DaemonSets, Pods, CSINode, ResourceSlices, Devices,
// SharedPools, DeviceTaintRules and Objects are set as far as they can be read. Zone is set only
// for an unreachable node, because decisions about other nodes do not depend on it.
func (r *Reader) Snapshot(ctx context.Context, node *corev1.Node, needs func(*gate.DaemonSets) gate.Needs) (gate.Facts, []Error) {
	// For a request with a limit, older API servers read from etcd and search all pods there.
	l := newSnapshot(r, node.Name, 0)
	steps := l.steps(l.begin(ctx, needs))
	n := l.nodes.Convert(node)
	if n.Silent() {
		steps = append(steps, func(ctx context.Context) { l.readZone(ctx, n.Zone()) })
	}
	inParallel(ctx, steps)
	slices.SortStableFunc(l.errs, byError)
	return l.facts(n), l.errs
}

func byError(a, b Error) int { return cmp.Compare(a.Err.Error(), b.Err.Error()) }

// inParallel runs steps concurrently.
func inParallel(ctx context.Context, steps []func(context.Context)) {
	var running sync.WaitGroup
	for _, step := range steps {
		running.Go(func() { step(ctx) })
	}
	running.Wait()
}

// readZone counts the nodes of a zone. The counts may be slightly outdated.
func (l *snapshot) readZone(ctx context.Context, zone string) {
	inZone, err := labels.NewRequirement(corev1.LabelTopologyZone, selection.Equals, []string{zone})
	if zone == "" {
		inZone, err = labels.NewRequirement(corev1.LabelTopologyZone, selection.DoesNotExist, nil)
	}
	var list *corev1.NodeList
	if err == nil {
		list, err = l.core.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: labels.NewSelector().Add(*inZone).String(), ResourceVersion: "0"})
	}
	if err != nil {
		l.addError(fmt.Errorf("counting the unreachable nodes of the node's zone: %w", err), nil)
		return
	}
	for i := range list.Items {
		l.zones.Count(l.nodes.Convert(&list.Items[i]))
	}
}

// Snapshots returns the facts about all Nodes, sorted by name. They are the same as those
// of Snapshot, except that Zone is always set. Each resource is read once, in pages.
// Snapshots fails only if the Nodes cannot be read.
func (r *Reader) Snapshots(ctx context.Context, needs func(*gate.DaemonSets) gate.Needs) ([]gate.Facts, []Error, error) {
	return newSnapshot(r, "", pageSize).all(ctx, needs)
}

// SnapshotsOf is like Snapshots, for the selected Nodes only. Zone counts only these.
func (r *Reader) SnapshotsOf(ctx context.Context, s NodeSelection, needs func(*gate.DaemonSets) gate.Needs) ([]gate.Facts, []Error, error) {
	l := newSnapshot(r, "", pageSize)
	l.selection = s
	return l.all(ctx, needs)
}

// all reads all selected Nodes and the facts about them.
func (l *snapshot) all(ctx context.Context, needs func(*gate.DaemonSets) gate.Needs) ([]gate.Facts, []Error, error) {
	var nodes []*gate.Node
	var err error
	inParallel(ctx, append(l.steps(l.begin(ctx, needs)), func(ctx context.Context) { nodes, err = l.readNodes(ctx, nil) }))
	if err != nil {
		return nil, nil, err
	}
	all := make([]gate.Facts, 0, len(nodes))
	for _, n := range nodes {
		all = append(all, l.facts(n))
	}
	slices.SortStableFunc(l.errs, byError)
	return all, l.errs, nil
}

// readNodes reads all selected Nodes and returns those that are wanted. A nil function selects
// all.
func (l *snapshot) readNodes(ctx context.Context, wanted func(*gate.Node) bool) ([]*gate.Node, error) {
	var nodes []*gate.Node
	err := eachOf(ctx, l.page, l.thinNodes().List, l.selection.options(metav1.ListOptions{}), func(o *corev1.Node) {
		n := l.nodes.Convert(o)
		l.zones.Count(n)
		if wanted == nil || wanted(n) {
			nodes = append(nodes, n)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	slices.SortFunc(nodes, func(a, b *gate.Node) int { return cmp.Compare(a.Name, b.Name) })
	return nodes, nil
}
