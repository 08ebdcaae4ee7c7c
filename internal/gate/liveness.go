// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Liveness is the state of the node's kubelet according to the Ready condition.
//
// It determines how far the node's other statuses can be trusted:
//
//	liveness    the kubelet          statuses of pods          a signal may open
//	Unreported  has never reported   prove nothing             yes
//	Ready       reports and syncs    are corrected in time     yes
//	NotReady    reports              may stay wrong for long   yes
//	Silent      does not report      are set to not ready      no
//
// A kubelet whose container runtime does not respond is NotReady and does not
// synchronize pods: a status from before the node's boot remains, and no controller
// corrects it.
type Liveness int

// The states of Liveness.
const (
	Unreported Liveness = iota
	Ready
	NotReady
	Silent
)

// String returns the name of the state.
func (l Liveness) String() string {
	return [...]string{Unreported: "Unreported", Ready: "Ready", NotReady: "NotReady", Silent: "Silent"}[l]
}

// Liveness returns the node's liveness and the time since which the API has reported
// it. The time is zero if the API does not report it.
func (n *Node) Liveness() (Liveness, time.Time) {
	c, ok := n.Condition(string(corev1.NodeReady))
	switch {
	case !ok:
		return Unreported, time.Time{}
	case c.Status == corev1.ConditionTrue:
		return Ready, c.Transition
	case c.Status == corev1.ConditionUnknown:
		return Silent, c.Transition
	}
	return NotReady, c.Transition
}

// Silent reports whether the node is unreachable: Ready is Unknown.
func (n *Node) Silent() bool {
	l, _ := n.Liveness()
	return l == Silent
}

// Reporting reports whether the node has reported its status and is not unreachable.
func (n *Node) Reporting() bool {
	l, _ := n.Liveness()
	return l == Ready || l == NotReady
}
