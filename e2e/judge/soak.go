// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"slices"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// tooBrief returns why the signals of a closed gate have not been in the state that opens it for
// openAfterSeconds, or "" if they may have. nodegate cannot have observed that state before it
// began. The API reports when other signals began to hold, by the node's clock; these are not judged.
func (t *trial) tooBrief(c *change, ng *v1alpha1.NodeGate, before record) string {
	wait, signals := time.Duration(ng.Spec.Timing.OpenAfterSeconds)*time.Second, slices.Concat(ng.Spec.OpenWhen, ng.Spec.CloseWhen)
	if wait == 0 || before.State != v1alpha1.StateClosed || before.returned(c.before) || slices.ContainsFunc(signals, isTimed) {
		return ""
	}
	if d := ng.Spec.Deadline; d != nil && d.Action == v1alpha1.DeadlineOpen && t.notOverdue(c, ng, before) == "" {
		return ""
	}
	since := t.Latest(c.revision).Add(time.Second - wait) // clocks differ
	for _, revision := range t.Relevant(c.name, since.Add(-t.Lag), c.revision) {
		if !t.Earliest(revision).After(since) && t.mayOpen(c, t.Moment(revision), ng, signals, since) {
			return ""
		}
	}
	return fmt.Sprintf("openAfterSeconds has not passed: %s before, the signals were not in the state that opens the gate", wait)
}

// mayOpen reports whether signals may be in the state that opens the gate on the changed Node.
func (t *trial) mayOpen(c *change, m revisions.Moment, ng *v1alpha1.NodeGate, signals []v1alpha1.Signal, now time.Time) bool {
	if node := m.Node(c.name); node == nil || node.UID != c.before.UID {
		return false
	}
	r, _ := t.evaluator(m, c.name, now, false).all(signals)
	return ng.Spec.Follows() && r != holds || !ng.Spec.Follows() && r != notYet
}

// isTimed reports whether the API reports since when a signal, or one of its alternatives, has held.
func isTimed(s v1alpha1.Signal) bool {
	timed := func(s *v1alpha1.SignalSource) bool {
		return s.Label == nil && s.Annotation == nil && s.CSIDriver == nil && s.Resource == nil
	}
	if len(s.AnyOf) == 0 {
		return timed(&s.SignalSource)
	}
	return slices.ContainsFunc(s.AnyOf, func(a v1alpha1.NamedSource) bool { return timed(&a.SignalSource) })
}
