// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	schedulingcorev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
	"github.com/nodegate/nodegate/presets"
)

// transientPrefixes are the prefixes of the keys of taints that other tools add and
// remove while a node is being set up, drained or repaired.
var transientPrefixes = []string{
	"node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/", "readiness.k8s.io/",
	"startup-taint.cluster-autoscaler.kubernetes.io/", "status-taint.cluster-autoscaler.kubernetes.io/",
	"ignore-taint.cluster-autoscaler.kubernetes.io/", "ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler",
}

// isTransient reports whether taints with this key are temporary: a daemon that does
// not tolerate one is still expected on the node.
func isTransient(key string, more []string) bool {
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

func isMirror(pod *corev1.Pod) bool { return pod.Annotations[corev1.MirrorPodAnnotationKey] != "" }

func isFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func isReady(pod *corev1.Pod) (bool, time.Time) {
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

// readyStatus is the status of the node's Ready condition; empty if there is none.
func readyStatus(node *corev1.Node) corev1.ConditionStatus { return readyCondition(node).Status }

// readyChanged is the time at which that status changed, according to the condition.
func readyChanged(node *corev1.Node) time.Time { return readyCondition(node).LastTransitionTime.Time }

func isUnreachable(node *corev1.Node) bool { return readyStatus(node) == corev1.ConditionUnknown }

// isShuttingDown reports whether the kubelet or a lifecycle condition reports the
// node's shutdown.
func isShuttingDown(node *corev1.Node) bool {
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

// blocked returns why no signal may open a gate on the node, or "" if signals may.
func blocked(node *corev1.Node) string {
	switch {
	case isUnreachable(node):
		return "the node's Ready condition is Unknown"
	case isShuttingDown(node):
		return "the node is shutting down"
	}
	for _, t := range node.Spec.Taints {
		if slices.Contains(setupTaints, t.Key) {
			return "the node is being set up: " + t.Key
		}
	}
	return ""
}

// selects reports whether a gate selects the node.
func selects(ng *v1alpha1.NodeGate, node *corev1.Node) bool {
	selector, err := ng.Spec.NodeSelector.AsSelector()
	return err == nil && selector.Matches(labels.Set(node.Labels)) && node.Labels[v1alpha1.OptOutLabel] != v1alpha1.OptOutValue
}

// taintOn returns the node's taint of this key and effect, or nil.
func taintOn(node *corev1.Node, t v1alpha1.Taint) *corev1.Taint {
	i := slices.IndexFunc(node.Spec.Taints, func(have corev1.Taint) bool { return have.Key == t.Key && have.Effect == t.Effect })
	if i < 0 {
		return nil
	}
	return &node.Spec.Taints[i]
}

// isGateKey reports whether a gate uses the taint key in this state.
func isGateKey(m revisions.Moment, key string) bool {
	return slices.ContainsFunc(m.Gates(), func(ng *v1alpha1.NodeGate) bool {
		return slices.ContainsFunc(ng.Spec.Taints(), func(t v1alpha1.Taint) bool { return t.Key == key })
	})
}

// belongs reports whether the DaemonSet controller creates a pod for the node, now or
// after temporary taints are removed.
func (l evaluator) belongs(ds *appsv1.DaemonSet) bool {
	spec := &ds.Spec.Template.Spec
	if spec.NodeName != "" && spec.NodeName != l.node.Name {
		return false
	}
	match, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *spec}).Match(l.node)
	if err != nil || !match {
		return false
	}
	for i := range l.node.Spec.Taints {
		t := &l.node.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule || l.transient(t.Key) || isGateKey(l.Moment, t.Key) {
			continue
		}
		if !schedulingcorev1.TolerationsTolerateTaint(logr.Discard(), spec.Tolerations, t, false) {
			return false
		}
	}
	return true
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
