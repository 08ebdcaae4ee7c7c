// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// defaultTransientPrefixes begin the keys of taints that come and go by
// themselves while a node is set up, drained or repaired. A daemon that does
// not tolerate one of these still belongs on the node: it comes when the taint
// goes.
var defaultTransientPrefixes = []string{
	"node.kubernetes.io/",
	"node.cloudprovider.kubernetes.io/",
	"karpenter.sh/",
	"readiness.k8s.io/",
	"startup-taint.cluster-autoscaler.kubernetes.io/",
	"status-taint.cluster-autoscaler.kubernetes.io/",
	"ignore-taint.cluster-autoscaler.kubernetes.io/",
	"ToBeDeletedByClusterAutoscaler",
	"DeletionCandidateOfClusterAutoscaler",
}

// setupTaints are on a node while its labels and taints are still on their
// way.
var setupTaints = []string{
	"node.cloudprovider.kubernetes.io/uninitialized",
	"karpenter.sh/unregistered",
}

// Transient tells taints that come and go by themselves from those that say
// who belongs on a node. Its zero value knows the well-known ones.
type Transient struct {
	// Prefixes begin further transient taint keys.
	Prefixes []string
	// GateKeys are the taint keys of all gates but those in dry run.
	GateKeys map[string]bool
}

// Is tells whether taints with this key come and go by themselves.
func (t Transient) Is(key string) bool {
	return t.GateKeys[key] || t.foreign(key)
}

// Lasting returns the others of the taints: those that say who belongs on a node.
func (t Transient) Lasting(taints []corev1.Taint) []corev1.Taint {
	var lasting []corev1.Taint
	for i := range taints {
		if !t.Is(taints[i].Key) {
			lasting = append(lasting, taints[i])
		}
	}
	return lasting
}

// Foreign tells whether one of the taints is transient and not a gate's: the
// node is still being set up, drained or repaired.
func (t Transient) Foreign(taints []corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(taint corev1.Taint) bool {
		return !t.GateKeys[taint.Key] && t.foreign(taint.Key)
	})
}

func (t Transient) foreign(key string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(key, prefix) }
	return slices.ContainsFunc(defaultTransientPrefixes, begins) || slices.ContainsFunc(t.Prefixes, begins)
}

func beingSetUp(taints []corev1.Taint) bool {
	return slices.ContainsFunc(taints, func(taint corev1.Taint) bool {
		return slices.Contains(setupTaints, taint.Key)
	})
}
