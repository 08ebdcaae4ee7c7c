// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/admission"
	"github.com/nodegate/nodegate/testcluster/await"
)

// The states of a gate on a node. With isNone, the node has neither taint nor record.
const (
	isOpen   = v1alpha1.StateOpen
	isClosed = v1alpha1.StateClosed
	isNone   = ""
)

// newGate returns a gate for all nodes that opens when one signal holds.
func newGate(name, key string, signal v1alpha1.SignalSource) *v1alpha1.NodeGate {
	return &v1alpha1.NodeGate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.NodeGateSpec{
			Taint:    v1alpha1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule},
			OpenWhen: []v1alpha1.Signal{{Name: "signal", SignalSource: signal}},
		},
	}
}

// newClosingGate returns a gate for all nodes that is closed while one signal holds.
func newClosingGate(name, key string, signal v1alpha1.SignalSource) *v1alpha1.NodeGate {
	ng := newGate(name, key, signal)
	ng.Spec.OpenWhen, ng.Spec.CloseWhen = nil, ng.Spec.OpenWhen
	return ng
}

// on limits a gate to the nodes with a label.
func on(ng *v1alpha1.NodeGate, key, value string) *v1alpha1.NodeGate {
	ng.Spec.NodeSelector.MatchLabels = map[string]string{key: value}
	return ng
}

// onRegression makes a gate close immediately when its signal no longer holds.
func onRegression(ng *v1alpha1.NodeGate) *v1alpha1.NodeGate {
	ng.Spec.ReclosePolicy = v1alpha1.RecloseOnRegression
	ng.Spec.Timing.CloseAfterSeconds = new(int32(0))
	return ng
}

func byLabel(key string) v1alpha1.SignalSource {
	return v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: key}}
}

func byDaemonSet(name string) v1alpha1.SignalSource {
	return v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: daemonNamespace, Name: name}}
}

func byExpression(text string) v1alpha1.SignalSource { return v1alpha1.SignalSource{Expression: text} }

// declare creates a gate and waits until it is in force.
func (e *env) declare(ng *v1alpha1.NodeGate) *v1alpha1.NodeGate {
	e.Helper()
	e.must(e.admin.Create(e.Context(), ng))
	e.inForce(ng.Name)
	return ng
}

// inForce waits until a gate is in force.
func (e *env) inForce(name string) {
	e.Helper()
	e.eventually("gate "+name+" is Ready", func() error { return e.condition(name, v1alpha1.ConditionReady, metav1.ConditionTrue, "") })
}

// isInvalid waits until a gate is not accepted because of its spec.
func (e *env) isInvalid(name string) {
	e.Helper()
	e.eventually("gate "+name+" is not accepted", func() error {
		return e.condition(name, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec)
	})
}

// edit changes an object that a controller may write at the same time: a gate or, where a
// DaemonSet controller runs, a DaemonSet.
func (e *env) edit(o client.Object, change func()) {
	e.Helper()
	e.must(retry.RetryOnConflict(persistently, func() error {
		if err := e.admin.Get(e.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		change()
		return e.admin.Update(e.Context(), o)
	}))
}

// readGate reads a gate.
func (e *env) readGate(name string) *v1alpha1.NodeGate {
	e.Helper()
	var ng v1alpha1.NodeGate
	e.must(e.admin.Get(e.Context(), client.ObjectKey{Name: name}, &ng))
	return &ng
}

// awaitCounts waits until a gate's status has these counts of nodes.
func (e *env) awaitCounts(name string, want v1alpha1.NodeCounts) {
	e.Helper()
	e.eventually(fmt.Sprintf("gate %s counts %+v", name, want), func() error {
		if got := e.readGate(name).Status.Nodes; got != want {
			return fmt.Errorf("counts: %+v", got)
		}
		return nil
	})
}

// waitingMessage returns the entry for a node in a gate's status.
func (e *env) waitingMessage(gateName, node string) v1alpha1.WaitingNode {
	e.Helper()
	for _, w := range e.readGate(gateName).Status.Waiting {
		if w.Node == node {
			return w
		}
	}
	return v1alpha1.WaitingNode{}
}

// condition checks a gate's condition, and its reason unless that is empty.
func (e *env) condition(name, kind string, status metav1.ConditionStatus, reason string) error {
	c, err := e.readCondition(name, kind)
	if err != nil {
		return err
	}
	if c == nil || c.Status != status || reason != "" && c.Reason != reason {
		return fmt.Errorf("condition %s of gate %s is %s, want %s %s", kind, name, conditionText(c), status, reason)
	}
	return nil
}

// messageContains checks the message of a gate's condition.
func (e *env) messageContains(name, kind, text string) error {
	c, err := e.readCondition(name, kind)
	if err != nil {
		return err
	}
	if c == nil || !strings.Contains(c.Message, text) {
		return fmt.Errorf("condition %s of gate %s is %s, want a message with %q", kind, name, conditionText(c), text)
	}
	return nil
}

// message returns the message of a gate's condition, or "".
func (e *env) message(name, kind string) string {
	e.Helper()
	c, err := e.readCondition(name, kind)
	e.must(err)
	if c == nil {
		return ""
	}
	return c.Message
}

// contendedWith checks that the gate reports that its taint is contended, and by which
// writer.
func (e *env) contendedWith(gateName, writer string) error {
	c, err := e.readCondition(gateName, v1alpha1.ConditionContended)
	if err != nil {
		return err
	}
	return namesWriter(c, writer)
}

// readCondition returns a gate's condition, or nil if it is absent.
func (e *env) readCondition(name, kind string) (*metav1.Condition, error) {
	var ng v1alpha1.NodeGate
	if err := e.admin.Get(e.Context(), client.ObjectKey{Name: name}, &ng); err != nil {
		return nil, err
	}
	return meta.FindStatusCondition(ng.Status.Conditions, kind), nil
}

// conditionText describes a condition without times, so that one that changes back and
// forth has the same texts again.
func conditionText(c *metav1.Condition) string {
	if c == nil {
		return "absent"
	}
	return fmt.Sprintf("%s (%s: %s)", c.Status, c.Reason, c.Message)
}

// closedAtBirth returns the gates that the API server closes on new nodes.
func (e *env) closedAtBirth() map[string]admission.Entry {
	e.Helper()
	var parameter corev1.PodTemplate
	err := e.admin.Get(e.Context(), client.ObjectKey{Namespace: installation.Namespace, Name: v1alpha1.BirthParameter}, &parameter)
	e.must(client.IgnoreNotFound(err))
	return admission.Entries(&parameter)
}

// closeNothing waits until the API server no longer closes the test's gates on new nodes, which
// it does until it has observed that their parameter was deleted. It observes the states of the
// parameter in order, so closeNothing waits for a last one, whose gate selects one node.
func (e *env) closeNothing(ctx context.Context) error {
	confined, err := e.controllerClient(ctx)
	if err != nil {
		return err
	}
	probe := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "probe", Labels: map[string]string{"probe": string(uuid.NewUUID())}}}
	entry, err := admission.NewEntry(on(newGate("probe", keyB, byLabel("probe")), "probe", probe.Labels["probe"]))
	if err != nil {
		return err
	}
	if err := confined.Create(ctx, admission.Parameter(installation.Namespace, v1alpha1.SourceCRD, []admission.Entry{entry})); err != nil {
		return fmt.Errorf("creating the last parameter: %w", err)
	}
	err = await.Until(ctx, "the API server to observe the last parameter", func(ctx context.Context) error {
		node := probe.DeepCopy()
		if err := e.admin.Create(ctx, node, client.DryRunAll); err != nil {
			return err
		}
		return errUnless(hasTaint(node, keyB), "the gate is not closed on the node")
	})
	return errors.Join(err, e.deleteParameters(ctx))
}

// deleteParameters deletes the birth parameter as the namespace controller would: the guard
// rejects all users other than the controller and kube-controller-manager.
func (e *env) deleteParameters(ctx context.Context) error {
	config := e.cluster.User("system:serviceaccount:kube-system:namespace-controller", "system:masters")
	api, err := client.New(config, client.Options{Scheme: e.admin.Scheme()})
	if err != nil {
		return err
	}
	return api.DeleteAllOf(ctx, &corev1.PodTemplate{}, client.InNamespace(installation.Namespace))
}
