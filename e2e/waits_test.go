// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/controller"
)

// unless returns an error unless ok is true.
func unless(ok bool) error {
	if ok {
		return nil
	}
	return errNotYet
}

// errUnless returns an error with this text unless ok is true.
func errUnless(ok bool, text string) error {
	if ok {
		return nil
	}
	return errors.New(text)
}

// currentCondition reads a gate's condition. It is nil if the gate does not have it.
func (e *env) currentCondition(gateName, kind string) *metav1.Condition {
	e.Helper()
	return meta.FindStatusCondition(e.readGate(gateName).Status.Conditions, kind)
}

// counts waits until a gate's status has these numbers of selected, open and closed nodes.
func (e *env) counts(name string, selected, open, closed int32) {
	e.Helper()
	e.eventually(fmt.Sprintf("gate %s counts %d nodes, %d open and %d closed", name, selected, open, closed), func() error {
		if n := e.readGate(name).Status.Nodes; n.Selected != selected || n.Open != open || n.Closed != closed {
			return fmt.Errorf("counts: %+v", n)
		}
		return nil
	})
}

// waitsFor waits until a gate's status contains the reason why it is closed on a node.
func (e *env) waitsFor(gateName, node string, reason v1alpha1.ReadingReason) {
	e.Helper()
	e.eventually(fmt.Sprintf("gate %s is closed on node %s because of %s", gateName, node, reason), func() error {
		waiting := e.readGate(gateName).Status.Waiting
		if slices.ContainsFunc(waiting, func(w v1alpha1.WaitingNode) bool { return w.Node == node && w.Reason == string(reason) }) {
			return nil
		}
		return fmt.Errorf("waiting: %+v", waiting)
	})
}

// contended waits until a gate reports that its taint is contended.
func (e *env) contended(gateName string) {
	e.Helper()
	e.eventually("gate "+gateName+" reports that its taint is contended", func() error {
		return e.condition(gateName, v1alpha1.ConditionContended, metav1.ConditionTrue, "")
	})
}

// contendedBy waits until a gate reports that its taint is contended, and names the writer.
func (e *env) contendedBy(gateName, writer string) {
	e.Helper()
	e.eventually("gate "+gateName+" reports that its taint is contended by "+writer, func() error { return e.contendedWith(gateName, writer) })
}

// startReconciled starts a controller whose clock is ahead, and waits until it has synced the
// feeds of a gate and decided about all nodes that the gate selects. nodes is their number.
// settled() does not prove this for nodes that existed when the controller started, because
// the controller reconciles new nodes first.
func (e *env) startReconciled(ahead time.Duration, gateName string, nodes int) (metrics *prometheus.Registry, stop func()) {
	e.Helper()
	return e.startReconciledBy(laterClock{ahead: ahead}, gateName, nodes)
}

// startReconciledBy is startReconciled with any clock.
func (e *env) startReconciledBy(clock clock.WithTicker, gateName string, nodes int) (metrics *prometheus.Registry, stop func()) {
	e.Helper()
	metrics = prometheus.NewRegistry()
	stop = e.runController(func(p *controller.Process) { p.Options.Clock, p.Registerer = clock, metrics })
	e.shows(metrics, "nodegate_gate_condition", 1, gateName, v1alpha1.ConditionReady)
	e.shows(metrics, "nodegate_gate_nodes", float64(nodes), gateName, "selected")
	return metrics, stop
}
