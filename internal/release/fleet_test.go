// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/write"
)

const closed = `{"state":"Closed","reason":"Birth","taint":"a/a:NoSchedule","source":"crd"}`

var taintA = corev1.Taint{Key: "a/a", Effect: corev1.TaintEffectNoSchedule}

// fleet is a fake API server with the nodes to release.
type fleet struct {
	mu    sync.Mutex
	nodes map[string]*gate.Node
	// before is called before each write to a node, with the number of the attempt, and
	// returns the error of the write.
	before func(name string, try int) error
	// after, if not nil, is called after each write has been carried out, and returns the error that
	// the client receives nevertheless.
	after  func(name string, try int) error
	tries  map[string]int
	writes int
}

func newFleet(nodes ...*gate.Node) *fleet {
	f := &fleet{nodes: make(map[string]*gate.Node), tries: make(map[string]int), before: func(string, int) error { return nil }}
	for _, n := range nodes {
		f.nodes[n.Name] = n
	}
	return f
}

// onTry returns a function that returns an error for one attempt to write to a node.
func onTry(which int, err error) func(name string, try int) error {
	return func(_ string, try int) error {
		if try == which {
			return err
		}
		return nil
	}
}

// closedNodes returns so many closed nodes.
func closedNodes(number int) (nodes []*gate.Node) {
	for i := range number {
		nodes = append(nodes, closedNode(fmt.Sprintf("n%02d", i)))
	}
	return nodes
}

func closedNode(name string) *gate.Node {
	return &gate.Node{Name: name, Taints: []corev1.Taint{taintA}, Records: map[string]string{"g": closed}}
}

func (f *fleet) NodeFacts(_ context.Context, name string) (*gate.Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.nodes[name]
	if !ok {
		return nil, fmt.Errorf("reading node: %w", apierrors.NewNotFound(corev1.Resource("nodes"), name))
	}
	return new(*n), nil
}

func (f *fleet) AllNodeFacts(_ context.Context, wanted func(*gate.Node) bool) ([]*gate.Node, error) {
	var all []*gate.Node
	for _, n := range f.nodes {
		if wanted(n) {
			all = append(all, n)
		}
	}
	return all, nil
}

func (f *fleet) Apply(_ context.Context, n *gate.Node, d *gate.Decision) (*corev1.Node, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tries[n.Name]++
	if err := f.before(n.Name, f.tries[n.Name]); err != nil {
		return nil, fmt.Errorf("patching node %s: %w", n.Name, err)
	}
	now := f.nodes[n.Name]
	if now.UID != n.UID || !maps.Equal(now.Records, n.Records) {
		return nil, write.ErrConflict
	}
	f.writes++
	f.nodes[n.Name] = written(now, d)
	if f.after != nil {
		return nil, f.after(n.Name, f.tries[n.Name])
	}
	return nil, nil
}

// written returns a node after a decision has been written. Like a Writer, it writes conditions only if
// the decision changes nothing else.
func written(n *gate.Node, d *gate.Decision) *gate.Node {
	after := *n
	if len(d.Records)+len(d.Withdrawn) == 0 {
		after.Conditions = slices.DeleteFunc(slices.Clone(n.Conditions), func(c gate.Condition) bool {
			name, ofGate := strings.CutPrefix(c.Type, v1alpha1.DeadlineConditionPrefix)
			status, changes := d.Conditions[name]
			return ofGate && changes && status == nil
		})
		return &after
	}
	after.Taints, after.Records, after.Overrides = d.Taints, without(n.Records, d.Records), without(n.Overrides, d.Withdrawn)
	return &after
}

// without returns annotations without those for which there is an empty text.
func without(annotations, changes map[string]string) map[string]string {
	annotations = maps.Clone(annotations)
	maps.DeleteFunc(annotations, func(name, _ string) bool {
		text, changes := changes[name]
		return changes && text == ""
	})
	return annotations
}

// run releases the fleet.
func (f *fleet) run(t *testing.T, ctx context.Context, o Options) (*Report, error) {
	t.Helper()
	r := &releaser{Options: o, reader: f, writer: f, backoff: wait.Backoff{Steps: 4, Duration: time.Nanosecond}}
	nodes, err := r.find(ctx)
	if err != nil {
		return nil, err
	}
	report := &Report{DryRun: o.DryRun}
	return report, r.release(ctx, nodes, report)
}
