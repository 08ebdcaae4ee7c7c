// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// PodList is a list of all pods on one node, in all namespaces.
type PodList struct {
	// At is the time at which the list was requested. The list is at least as recent.
	At   time.Time
	Pods []BoundPod
}

// BoundPod contains the relevant parts of any pod that is bound to a node.
type BoundPod struct {
	Namespace, Name string
	UID             types.UID
	// ResourceVersion is the pod's resource version.
	ResourceVersion string
	// Daemon is true if a DaemonSet (of any API group) controls the pod.
	Daemon bool
	// Mirror is true if the pod represents a static pod of the kubelet.
	Mirror bool
	// Owned is true if the pod has a controller, which replaces it.
	Owned bool
	// HostNetwork is true if the pod uses the node's network.
	HostNetwork bool
	// Finished is true if the pod has succeeded or failed and will not run again.
	Finished bool
	// Terminating is true once the deletion of the pod has been requested.
	Terminating bool
	// Tolerations are the pod's tolerations. ManyTolerations is true if there are too many
	// to keep, so that it is unknown what the pod tolerates.
	Tolerations     []corev1.Toleration
	ManyTolerations bool
	// Created is the time at which the pod was created. Bound is the time at which it
	// was bound to its node, or zero. Both come from the API server's clock, unless the
	// pod was created with a node name: then Bound is reported by the kubelet.
	Created, Bound time.Time
	// Starts contains the start times of the pod's current containers, including init
	// containers.
	Starts []Start
	// Rejection is how the kubelet rejected the pod, or nil.
	Rejection *Rejection
}

// Start is the last start of a container.
type Start struct {
	// At is the start time by the node's clock, in whole seconds.
	At time.Time
	// Running reports whether the container has been running since.
	Running bool
	// Init reports whether it is an init container.
	Init bool
}

// isWorkload reports whether the pod prevents its node from being idle.
func (p *BoundPod) isWorkload() bool { return !p.Daemon && !p.Mirror && !p.Finished }

// Tolerates reports whether the pod tolerates the taint, even if only for a limited
// time.
func (p *BoundPod) Tolerates(t v1alpha1.Taint) bool {
	return Tolerates(p.Tolerations, t.Core())
}

// Tolerates reports whether one of the tolerations tolerates the taint, even if only for a
// limited time.
func Tolerates(tolerations []corev1.Toleration, taint corev1.Taint) bool {
	const comparisonOperators = false // alpha: Lt and Gt in tolerations
	return schedulingcorev1.TolerationsTolerateTaint(logr.Discard(), tolerations, &taint, comparisonOperators)
}
