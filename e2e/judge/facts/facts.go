// SPDX-License-Identifier: Apache-2.0

// Package facts returns what single objects state: Nodes, pods and gates. It follows the wording
// of the API documentation.
package facts

import (
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/presets"
)

// transientPrefixes are the prefixes of the keys of taints that other tools add and
// remove while a node is being set up, drained or repaired.
var transientPrefixes = []string{
	"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/", "readiness.k8s.io/",
	"startup-taint.cluster-autoscaler.kubernetes.io/", "status-taint.cluster-autoscaler.kubernetes.io/",
	"ignore-taint.cluster-autoscaler.kubernetes.io/", "ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler",
}

// IsTransient reports whether taints with this key are temporary: a daemon that does
// not tolerate one is still expected on the node.
func IsTransient(key string, more []string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(key, prefix) }
	return slices.ContainsFunc(transientPrefixes, begins) || slices.ContainsFunc(more, begins) || slices.Contains(presetKeys(), key)
}

// presetKeys returns the taint keys of the presets. They are startup taints of other
// tools.
var presetKeys = sync.OnceValue(presets.TaintKeys)

// setupTaints are the keys of taints that a node carries until its cloud provider,
// Cluster API or Karpenter has initialized it.
var setupTaints = []string{
	"node.cloudprovider.kubernetes.io/uninitialized", "node.cluster.x-k8s.io/uninitialized", "karpenter.sh/unregistered",
}

// IsMirror reports whether a kubelet created the pod, for a static pod.
func IsMirror(pod *corev1.Pod) bool { return pod.Annotations[corev1.MirrorPodAnnotationKey] != "" }

// IsFinished reports whether no container of the pod will run again.
func IsFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// IsReady reports whether the pod is ready, and since when that is so.
func IsReady(pod *corev1.Pod) (bool, time.Time) {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	return false, time.Time{}
}

// readyCondition returns the node's Ready condition; empty if there is none.
func readyCondition(node *corev1.Node) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// ReadyStatus is the status of the node's Ready condition; empty if there is none.
func ReadyStatus(node *corev1.Node) corev1.ConditionStatus { return readyCondition(node).Status }

// ReadyChanged is the time at which that status changed, according to the condition.
func ReadyChanged(node *corev1.Node) time.Time { return readyCondition(node).LastTransitionTime.Time }

// IsUnreachable reports whether the node's Ready condition is Unknown.
func IsUnreachable(node *corev1.Node) bool { return ReadyStatus(node) == corev1.ConditionUnknown }

// IsShuttingDown reports whether the kubelet or a lifecycle condition reports the
// node's shutdown.
func IsShuttingDown(node *corev1.Node) bool {
	for _, c := range node.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "node is shutting down"),
			c.Type == corev1.NodeGracefulNodeShutdownInProgress && c.Status == corev1.ConditionTrue && !endsOtherBoot(c.Message, node):
			return true
		}
	}
	return false
}

// endsOtherBoot reports whether a message of nodegate's agent names another boot than the node's.
func endsOtherBoot(message string, node *corev1.Node) bool {
	boot, ofAgent := strings.CutPrefix(message, v1alpha1.ShutdownMessagePrefix)
	return ofAgent && boot != node.Status.NodeInfo.BootID
}

// Blocked returns why no signal may open a gate on the node, or "" if signals may.
func Blocked(node *corev1.Node) string {
	switch {
	case IsUnreachable(node):
		return "the node's Ready condition is Unknown"
	case IsShuttingDown(node):
		return "the node is shutting down"
	}
	for _, t := range node.Spec.Taints {
		if slices.Contains(setupTaints, t.Key) {
			return "the node is being set up: " + t.Key
		}
	}
	return ""
}

// Selects reports whether a gate selects the node.
func Selects(ng *v1alpha1.NodeGate, node *corev1.Node) bool {
	selector, err := ng.Spec.NodeSelector.AsSelector()
	return err == nil && selector.Matches(labels.Set(node.Labels)) && node.Labels[v1alpha1.OptOutLabel] != v1alpha1.OptOutValue
}

// TaintOn returns the node's taint of this key and effect, or nil.
func TaintOn(node *corev1.Node, t v1alpha1.Taint) *corev1.Taint {
	i := slices.IndexFunc(node.Spec.Taints, func(have corev1.Taint) bool { return have.Key == t.Key && have.Effect == t.Effect })
	if i < 0 {
		return nil
	}
	return &node.Spec.Taints[i]
}

// CarriesAny reports whether the node carries one of the gate's taints.
func CarriesAny(node *corev1.Node, ng *v1alpha1.NodeGate) bool {
	return slices.ContainsFunc(ng.Spec.Taints(), func(own v1alpha1.Taint) bool { return TaintOn(node, own) != nil })
}

// ZoneOf returns the node's zone.
func ZoneOf(node *corev1.Node) string { return node.Labels[corev1.LabelTopologyZone] }

// IsWorkload reports whether the pod is not a DaemonSet pod, mirror pod or finished
// pod.
func IsWorkload(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return !IsMirror(pod) && !IsFinished(pod) && (owner == nil || owner.Kind != "DaemonSet")
}

// OwnedBy reports whether an object is owned by the Node with a UID.
func OwnedBy(object metav1.Object, node types.UID) bool {
	return slices.ContainsFunc(object.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.UID == node })
}
