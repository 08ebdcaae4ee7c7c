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

// PodList is all pods of one node, of whatever namespace.
type PodList struct {
	// At is when they began to be read: what is in the list is not older.
	At   time.Time
	Pods []BoundPod
}

// BoundPod is what is known of a pod that is bound to a node, whoever's it is.
type BoundPod struct {
	Namespace, Name string
	UID             types.UID
	// ResourceVersion is the state of the pod that this is.
	ResourceVersion string
	// Daemon pods are controlled by a DaemonSet (of whatever API group).
	Daemon bool
	// Mirror pods stand for what a kubelet runs by itself.
	Mirror bool
	// Owned pods have a controller, which replaces them.
	Owned bool
	// HostNetwork pods use the node's own network.
	HostNetwork bool
	// Finished pods have succeeded or failed for good.
	Finished bool
	// Terminating is set from the moment the pod's deletion was asked for.
	Terminating bool
	Tolerations []corev1.Toleration
	// Created is when the pod was created, and Bound when it was bound to its
	// node: both by the API server's clock, but for a pod that was created with
	// its node's name, whose kubelet tells when it was bound. Bound may be zero.
	Created, Bound time.Time
	// Starts are those of its present containers, init containers among them.
	Starts []Start
}

// Start is when a container was started last.
type Start struct {
	// At is by the node's clock, in whole seconds.
	At time.Time
	// Running tells whether the container runs since.
	Running bool
}

// isWorkload tells whether the pod keeps its node from being idle.
func (p *BoundPod) isWorkload() bool { return !p.Daemon && !p.Mirror && !p.Finished }

// Tolerates tells whether the pod may be on a node with the taint, for however
// long.
func (p *BoundPod) Tolerates(t v1alpha1.Taint) bool {
	const comparisonOperators = false // alpha: Lt and Gt in tolerations
	taint := corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}
	return schedulingcorev1.TolerationsTolerateTaint(logr.Discard(), p.Tolerations, &taint, comparisonOperators)
}
