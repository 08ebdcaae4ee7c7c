// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// explainObstacle returns the reason why no signal can open the gate, or nil. An open gate, such as one
// that an override opens, has none.
func explainObstacle(v *gate.Verdict) *Obstacle {
	if v.Blocked == "" || v.After == v1alpha1.StateOpen {
		return nil
	}
	r := v.Obstacle()
	o := &Obstacle{Reason: v.Blocked, Message: r.SnapshotMessage(), Until: v.BlockedUntil.UTC()}
	if v.Blocked == v1alpha1.ReadingOpenAfter {
		o.Message += ", or earlier if the controller observed the signals' change earlier than the API shows"
	}
	return o
}

// isGroupUnread reports whether a gate appears to wait for the node's group because that could not be
// read.
func (f *Facts) isGroupUnread(v *gate.Verdict) bool {
	if len(f.ReadErrors) == 0 || v.Group == nil || v.Group.Known {
		return false
	}
	return v.Blocked == v1alpha1.ReadingGroupIncomplete || v.Blocked == v1alpha1.ReadingNotObserved
}

// notReady returns why a gate is not ready, if its state on the node may be a consequence: the
// controller may not be able to read what could be read here, or to write.
func (f *Facts) notReady(e *Gate) string {
	ng := f.Gates.Declared[e.Gate]
	if ng == nil || e.DryRun || e.NotInForce != "" || e.State != v1alpha1.StateClosed && e.Becomes == "" {
		return ""
	}
	c := meta.FindStatusCondition(ng.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || c.Status != metav1.ConditionFalse || c.ObservedGeneration != ng.Generation {
		return ""
	}
	return fmt.Sprintf("%s (%s)", gate.Printable(c.Message), c.Reason)
}

// becomesStep returns the next step for a gate that is about to change its state.
func becomesStep(e *Gate) string {
	if e.NotReady != "" {
		return "the controller does this immediately, unless the cause of the gate's condition Ready prevents it: fix that cause; if the state does not change, check whether the controller is running, and whether its log contains 'cannot write node'"
	}
	return "the controller does this immediately; if the state does not change, check whether the controller is running, and whether its log contains 'cannot write node'"
}
