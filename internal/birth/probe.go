// SPDX-License-Identifier: Apache-2.0

package birth

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/internal/gateset"
)

// probe is the creation of one node in a dry run, for all gates whose own probe node
// would be the same except for its name. It is not sufficient that a gate selects the
// node: if the API server still uses an older version of a gate that selected fewer
// nodes, it may close this node but not the gate's own probe node.
type probe []candidate

// candidate is a gate of a probe.
type candidate struct {
	gate *v1alpha1.NodeGate
	// node is the gate's own probe node, or nil if it selects no node.
	node *corev1.Node
}

// probes returns the probes for the gates that are due, most urgent first. Each probe
// includes all of its gates, due or not, so that they stay together.
func (b *Reconciler) probes(set *gateset.Set, due []string) []probe {
	if len(due) == 0 {
		return nil
	}
	byLabels, labelsOf := make(map[string]probe), make(map[string]string)
	for _, name := range set.Names() {
		if !set.ClosesAtBirth(name) {
			continue
		}
		one := candidate{gate: set.Declared[name]}
		if node, ok := admission.Probe(one.gate, b.gates[name].previous); ok { // otherwise "": the gate selects no node
			one.node, labelsOf[name] = node, labels.FormatLabels(node.Labels)
		}
		byLabels[labelsOf[name]] = append(byLabels[labelsOf[name]], one)
	}
	var all []probe
	for _, name := range due {
		if p := byLabels[labelsOf[name]]; p != nil {
			all = append(all, p)
			delete(byLabels, labelsOf[name])
		}
	}
	return all
}

// send creates the node in a dry run. It returns a function that returns, for each gate,
// nil if the gate is closed on the node, and otherwise an error.
func (p probe) send(ctx context.Context, c client.Client, by admission.Birth) func(*v1alpha1.NodeGate) error {
	created, err := p.create(ctx, c)
	return func(ng *v1alpha1.NodeGate) error {
		if err != nil || created == nil {
			return err
		}
		return admission.Proved(by, ng, created)
	}
}

// create returns the node as created in a dry run, or nil if no node can be selected.
func (p probe) create(ctx context.Context, c client.Client) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var taken error
	for _, one := range p { // if a node of that name exists, another gate's name is used
		if one.node == nil {
			return nil, nil
		}
		switch err := c.Create(ctx, one.node, client.DryRunAll); {
		case apierrors.IsAlreadyExists(err):
			taken = cmp.Or(taken, fmt.Errorf("a node named %s exists: delete it, because probes need the name", one.node.Name))
		case err != nil:
			return nil, fmt.Errorf("creating a probe node in a dry run: %w", err)
		default:
			return one.node, nil
		}
	}
	return nil, taken
}
