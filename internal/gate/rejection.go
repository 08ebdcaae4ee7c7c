// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Rejected pods.
//
// When a kubelet starts, for example after a reboot, it decides again whether it admits the
// pods that are bound to its node. A pod that requests a device whose plugin has not
// registered yet is rejected (kubernetes#128043): it gets the phase Failed, and never runs
// again. No container of it starts, so it has not bypassed the gate, but it is lost for the
// same reason: it was bound to a node that was not ready for it.
//
// Only the time proves that the gate was closed, and a kubelet does not report the time of a
// rejection. Instead, these are known:
//
//   - The start time is when a kubelet first saw the pod, by the node's clock. If the gate was
//     closed then, no kubelet had admitted the pod before, and the start time is the time of the
//     rejection.
//   - The API server records when it last stored a status from the kubelet. A kubelet that starts
//     reports a rejection about ten seconds late, because it first checks which containers still
//     run.
//   - A rejection removes the pod's conditions and containers from its status. The kubelet writes
//     them again later: when the device plugin registers (since Kubernetes 1.36), or when it starts
//     the next time. The condition Ready then has the time of that write, by the node's clock, and
//     keeps it when the kubelet writes the status once more in a later boot. If the containers
//     ended long before a new boot, the pod may have been rejected in an earlier boot.
//
// After a reboot, every pod that was admitted before is admitted or rejected again, at the start
// of the new boot. A report since the new boot was observed is therefore certain, even if the
// gate has opened in the meantime. A kubelet may report a rejection before it reports
// the boot, so it is possible that the gate was closed if that was in the last bypassBoot before.
// If there was no reboot, the kubelet has restarted, and it is only possible that the gate was
// closed if the rejection was reported less than RejectionLag after the closing, or after the
// opening.

// RejectionLag is how long it takes at most until the API server has stored a rejection.
const RejectionLag = 15 * time.Second

// Rejection is a kubelet's decision not to run a pod.
type Rejection struct {
	// Reason is the kubelet's reason.
	Reason string
	// Start is the start time of the pod. Reported is when the API server last stored a status
	// from the kubelet, or when the pod's condition Ready changed, if that is earlier. They are
	// in whole seconds, and zero if they are not known.
	Start, Reported time.Time
	// Ended is the end of the last container in the status, or zero if there is none.
	Ended time.Time
}

// Reasons of kubelets for rejections (pkg/kubelet in k8s.io/kubernetes).
const (
	// rejectedUnexpected means that the kubelet could not allocate devices, CPUs or memory.
	rejectedUnexpected = "UnexpectedAdmissionError"
	// rejectedTopology means that the topology manager could not align them, for example
	// because a device plugin has reported only some of its devices.
	rejectedTopology = "TopologyAffinityError"
	// rejectedTaint means that the node has a taint with NoExecute that the pod does not
	// tolerate.
	rejectedTaint = "TaintToleration"
	// rejectedOutOf precedes the name of a resource if the node has too little of it. It has
	// none of a device plugin's resource until the plugin has registered.
	rejectedOutOf = "OutOf"
)

// AttributableTo reports whether a kubelet may reject a pod for this reason because the node,
// which has the taint of a gate, is not ready for it. What every node has as soon as its
// kubelet runs is not among the causes: CPU, memory, storage, labels, ports and features of
// the kubelet. Nor is a shutdown, or pressure on resources.
func (r *Rejection) AttributableTo(t v1alpha1.Taint) bool {
	resource, outOf := strings.CutPrefix(r.Reason, rejectedOutOf)
	switch {
	case outOf:
		switch corev1.ResourceName(resource) {
		case "", corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods:
			return false
		}
		return true
	case r.Reason == rejectedTaint:
		return t.Effect == corev1.TaintEffectNoExecute
	}
	return r.Reason == rejectedUnexpected || r.Reason == rejectedTopology
}

// Rejected returns how certain it is that the kubelet rejected a pod while the gate was closed,
// for a reason that can be attributed to what the gate waits for.
func (c *Closure) Rejected(p *BoundPod) Certainty {
	r := p.Rejection
	if r == nil || c.excludes(p) || !r.AttributableTo(c.Taint) {
		return Impossible
	}
	from, until := c.From.Truncate(time.Second), c.Until
	switch {
	case !r.Start.Before(from):
		return certainty(r.Start, from, from, until.Add(-bypassMargin), until.Add(bypassMargin))
	case !c.NewBoot:
		return certainty(r.Reported, from, from.Add(RejectionLag), until.Add(-bypassMargin), until.Add(RejectionLag))
	}
	most := certainty(r.Reported, from.Add(-bypassBoot), from, until.Add(RejectionLag), until.Add(RejectionLag))
	if !r.Ended.IsZero() && r.Ended.Before(from.Add(-bypassBoot)) {
		most = min(most, Possible)
	}
	return most
}

// certainty returns how certain a time is, given the first and last times that are possible, and
// those that are certain.
func certainty(at, possible, certain, certainUntil, possibleUntil time.Time) Certainty {
	switch {
	case at.Before(possible) || at.After(possibleUntil):
		return Impossible
	case at.Before(certain) || at.After(certainUntil):
		return Possible
	}
	return Certain
}
