// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster"
	"github.com/nodegate/nodegate/internal/gate"
)

// unseen stands for every signal where none is looked at: it neither opens a gate
// nor closes it, so that what is decided rests on records, labels and overrides.
type unseen struct{}

func (unseen) Read(gate.Input) gate.Reading {
	return gate.Reading{State: gate.Unknown, Reason: v1alpha1.ReadingNotObserved}
}
func (unseen) Evidence(*gate.Facts) ([]gate.Pod, bool) { return nil, false }
func (unseen) ProvesBoot() bool                        { return false }
func (unseen) Needs(*gate.DaemonSets) gate.Needs       { return gate.Needs{} }

// blindfold has the gates look at nothing.
func (s *sight) blindfold() {
	for i := range s.gates {
		signals := slices.Clone(s.gates[i].Signals)
		for j := range signals {
			signals[j].Signal = unseen{}
		}
		s.gates[i].Signals = signals
	}
}

// stand decides about a node by what it tells itself.
func (s *sight) stand(n *gate.Node) gate.Decision {
	facts := gate.Facts{Node: *n, DaemonSets: &gate.DaemonSets{}}
	facts.Transient.GateKeys = s.keys()
	return gate.Decide(s.gates, &facts, s.now)
}

// errNotInstalled is what an API server tells that knows no NodeGates.
var errNotInstalled = errors.New("nodegate is not installed here: the API server knows no NodeGates")

// declaredGates reads the NodeGates. There are none where the kind is not known, as
// where gates come from files; installed tells them apart.
func declaredGates(ctx context.Context, reader *cluster.Reader) (declared []v1alpha1.NodeGate, installed bool, err error) {
	declared, err = reader.Gates(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, unanswered(err)
	}
	return declared, true, nil
}

// noSuchGate says that there is no such gate, and what may have been meant.
func noSuchGate(name string, names []string) error {
	return fmt.Errorf("there is no gate %q%s", name, didYouMean(name, names))
}

// together does several things at the same time, and returns when all are done.
func together(things ...func()) {
	var all sync.WaitGroup
	for _, thing := range things {
		all.Go(thing)
	}
	all.Wait()
}
