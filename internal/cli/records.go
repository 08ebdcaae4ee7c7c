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
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/read"
)

// unreadSignal replaces every signal where signals are not read. It neither opens nor
// closes a gate, so that a decision depends on records, labels and overrides only.
type unreadSignal struct{}

func (unreadSignal) Read(gate.Input) gate.Reading {
	return gate.Reading{State: gate.Unknown, Reason: v1alpha1.ReadingNotObserved}
}
func (unreadSignal) Evidence(*gate.Facts) ([]gate.Pod, bool) { return nil, false }
func (unreadSignal) ProvesBoot() bool                        { return false }
func (unreadSignal) Needs(*gate.DaemonSets) gate.Needs       { return gate.Needs{} }

// ignoreSignals replaces the signals of all gates by unreadSignal.
func (s *snapshot) ignoreSignals() {
	for i := range s.gates {
		signals := slices.Clone(s.gates[i].Signals)
		for j := range signals {
			signals[j].Signal = unreadSignal{}
		}
		s.gates[i].Signals = signals
	}
}

// decideFromRecords decides about a node from its own metadata: records, labels,
// overrides and taints.
func (s *snapshot) decideFromRecords(n *gate.Node) gate.Decision {
	facts := gate.Facts{Node: *n, DaemonSets: &gate.DaemonSets{}}
	facts.Transient.GateKeys = s.keys()
	return gate.Decide(s.gates, &facts, s.now)
}

// errNotInstalled is returned when the API server does not serve NodeGates.
var errNotInstalled = errors.New("nodegate is not installed: the API server does not serve NodeGates")

// declaredGates reads the NodeGates. If the API server does not serve NodeGates,
// installed is false and there are none; gates may still come from files.
func declaredGates(ctx context.Context, reader *read.Reader) (declared []v1alpha1.NodeGate, installed bool, err error) {
	declared, err = reader.Gates(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, describeRequestError(err)
	}
	return declared, true, nil
}

// noSuchGate returns an error for a gate that does not exist. It suggests similar
// names.
func noSuchGate(name string, names []string) error {
	return fmt.Errorf("gate %q not found%s", name, didYouMean(name, names))
}

// concurrently runs functions concurrently and returns when all are done.
func concurrently(things ...func()) {
	var all sync.WaitGroup
	for _, thing := range things {
		all.Go(thing)
	}
	all.Wait()
}
