// SPDX-License-Identifier: Apache-2.0

package agent

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/hold"
	"github.com/nodegate/nodegate/internal/kube/gateclient"
)

// stateOf returns what the plugin has to know in a boot. A gate without a record on the Node
// does not apply to it.
func stateOf(boot string, node *corev1.Node, gates []*gateclient.StoredGate, pods []*corev1.Pod) *hold.State {
	state := &hold.State{Boot: boot, Gates: []hold.Gate{}, Pods: make(map[string]hold.BoundPod)}
	for _, p := range pods {
		state.Pods[string(p.UID)] = hold.BoundPod{Terminating: p.DeletionTimestamp != nil, Restarts: p.Spec.RestartPolicy != corev1.RestartPolicyNever}
	}
	for _, ng := range gates {
		record, err := gate.ParseRecord(node.Annotations[v1alpha1.RecordAnnotationPrefix+ng.Name])
		if err != nil || !holds(&ng.NodeGate) {
			continue
		}
		current := boot
		if ng.Spec.Mode == v1alpha1.ModePaused {
			current = record.Boot // a paused gate does not close again, and its record stays
		}
		state.Gates = append(state.Gates, hold.Gate{Name: ng.Name, Open: record.OpenIn(current), Seconds: ptr.Deref(ng.Spec.HoldSeconds, v1alpha1.DefaultHoldSeconds)})
		for _, p := range pods {
			if !tolerates(p, &ng.NodeGate) {
				bound := state.Pods[string(p.UID)]
				bound.Gates = append(bound.Gates, ng.Name)
				state.Pods[string(p.UID)] = bound
			}
		}
	}
	return state
}

// holds reports whether the gate holds pods. A paused gate keeps its taints.
func holds(ng *v1alpha1.NodeGate) bool {
	return ng.ReadError == "" && ng.Spec.Mode != v1alpha1.ModeDryRun && ng.Spec.BypassedPods == v1alpha1.BypassedHold &&
		!meta.IsStatusConditionFalse(ng.Status.Conditions, v1alpha1.ConditionAccepted)
}

// tolerates reports whether the pod tolerates all taints of the gate.
func tolerates(p *corev1.Pod, ng *v1alpha1.NodeGate) bool {
	bound := gate.BoundPod{Tolerations: p.Spec.Tolerations}
	for _, taint := range ng.Spec.Taints() {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !bound.Tolerates(taint) {
			return false
		}
	}
	return true
}
