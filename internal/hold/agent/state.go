// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"time"

	"github.com/nodegate/nodegate/internal/hold"
)

// stateOf returns what the plugin has to know in a boot that the agent has known for some time. A
// gate without a record on the Node does not apply to it.
//
// A gate that was open in a former boot counts as closed until nodegate has had time to close it in
// this one. It does not close a gate for a reboot that it has not observed while the signals are
// unknown. Such a gate has no taint, so that new pods would be held for as long as that lasts.
func stateOf(boot string, known time.Duration, n *node, gates []*nodeGate, pods []*pod) *hold.State {
	state := &hold.State{Boot: boot, Gates: []hold.Gate{}, Pods: make(map[string]hold.BoundPod)}
	for _, p := range pods {
		state.Pods[p.UID] = hold.BoundPod{Terminating: p.DeletionTimestamp != "", Restarts: restarts(p)}
	}
	for _, ng := range gates {
		record, err := parseRecord(n.Annotations[recordAnnotationPrefix+ng.Name])
		if err != nil || !holds(ng) {
			continue
		}
		seconds := int32(defaultHoldSeconds)
		if ng.Spec.HoldSeconds != nil {
			seconds = *ng.Spec.HoldSeconds
		}
		current := boot
		if ng.Spec.Mode == modePaused || known >= time.Duration(seconds)*time.Second {
			current = record.Boot // a paused gate does not close again, and its record stays
		}
		state.Gates = append(state.Gates, hold.Gate{Name: ng.Name, Open: record.openIn(current), Seconds: seconds})
		for _, p := range pods {
			if !tolerates(p, ng) {
				bound := state.Pods[p.UID]
				bound.Gates = append(bound.Gates, ng.Name)
				state.Pods[p.UID] = bound
			}
		}
	}
	return state
}

// restarts reports whether the kubelet restarts each container of the pod that fails to start,
// however often, and nothing depends on the number of restarts: a Job, whose pods have another
// policy, fails after too many. The kubelet starts an ephemeral container before the others,
// and never again.
func restarts(p *pod) bool {
	return len(p.Spec.EphemeralContainers) == 0 && p.Spec.RestartPolicy == restartPolicyAlways && !bool(p.Spec.InitContainers) && !bool(p.Spec.Containers)
}

// holds reports whether the gate holds pods. A paused gate keeps its taints.
func holds(ng *nodeGate) bool {
	return !ng.unreadable && ng.Spec.Mode != modeDryRun && ng.Spec.BypassedPods == bypassedHold &&
		!slices.ContainsFunc(ng.Conditions, func(c condition) bool { return c.Type == conditionAccepted && c.Status == conditionFalse })
}

// tolerates reports whether the pod tolerates all taints of the gate.
func tolerates(p *pod, ng *nodeGate) bool {
	for _, of := range ng.taints() {
		if of.Effect != effectPreferNoSchedule && !slices.ContainsFunc(p.Spec.Tolerations, func(t toleration) bool { return t.tolerates(of) }) {
			return false
		}
	}
	return true
}
