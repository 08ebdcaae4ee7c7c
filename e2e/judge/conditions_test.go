// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// publishing makes the gate publish overdue nodes, one at a time in each zone.
func publishing(ng *v1alpha1.NodeGate) {
	ng.Spec.Deadline = &v1alpha1.Deadline{ReadySeconds: new(int32), Condition: v1alpha1.DeadlineConditionPublish}
	ng.Spec.Budget.MaxReclosed = one()
}

// overdue is the record of a gate that has been closed since birth and is past its deadline.
func overdue(node *corev1.Node) {
	r := bornRecord
	r.Overdue = true
	recorded(r)(node)
}

// bornRecord is the record of a gate that has been closed since birth.
var bornRecord = record{State: "Closed", Reason: "Birth", Taint: gateTaint + ":NoSchedule", Boot: "boot-1"}

// published adds the gate's condition to a node.
func published(node *corev1.Node) {
	withCondition("deadline.nodegate.dev/agent", "True", "DeadlinePassed")(node)
}

// withCondition adds a condition to a node, before all others.
func withCondition(kind, status, reason string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Status.Conditions = append([]corev1.NodeCondition{{
			Type: corev1.NodeConditionType(kind), Status: corev1.ConditionStatus(status), Reason: reason,
		}}, node.Status.Conditions...)
	}
}

func withoutCondition(kind string) func(*corev1.Node) {
	return func(node *corev1.Node) {
		node.Status.Conditions = slices.DeleteFunc(slices.Clone(node.Status.Conditions), func(c corev1.NodeCondition) bool { return string(c.Type) == kind })
	}
}
