// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/facts"
	"github.com/nodegate/nodegate/e2e/judge/revisions"
)

// completed returns the reading of a signal about pods that run once. It reads every version
// of the pods up to the moment, because a success counts after the deletion of its pod.
func (l evaluator) completed(s *v1alpha1.CompletedSignal) (reading, string) {
	selector, err := s.Selector.AsSelector()
	if err != nil {
		return unknown, err.Error()
	}
	result, why := notYet, "no pod that names the current boot has succeeded"
	seen := make(map[types.UID]bool)
	for _, id := range l.PodsOf(l.node.Name) {
		for _, v := range l.VersionsOf(id) {
			pod, ok := v.Object.(*corev1.Pod)
			if !ok || v.Revision > l.Revision || seen[pod.UID] || pod.Status.Phase != corev1.PodSucceeded || !l.ran(pod, s.Namespace, selector) {
				continue
			}
			seen[pod.UID] = true
			if r, because := l.success(pod, s, selector); r >= result {
				result, why = r, because
			}
		}
	}
	return result, why
}

// ran reports whether a pod is one of a signal's that ran in the current boot of the Node, or
// in any boot if evidence of the boot is not required.
func (l evaluator) ran(pod *corev1.Pod, namespace string, selector labels.Selector) bool {
	boot := l.node.Status.NodeInfo.BootID
	current := boot != "" && pod.Labels[v1alpha1.BootLabel] == boot && !pod.CreationTimestamp.Before(&l.node.CreationTimestamp)
	return (current || l.boots == nil) && pod.Namespace == namespace && selector.Matches(labels.Set(pod.Labels)) &&
		pod.Spec.NodeName == l.node.Name && !facts.IsMirror(pod) && pod.DeletionTimestamp == nil
}

// success returns the reading of a success. What nodegate may or may not have seen, or may have
// read a little earlier, is l.doubtful.
func (l evaluator) success(pod *corev1.Pod, s *v1alpha1.CompletedSignal, selector labels.Selector) (reading, string) {
	ended, exists := l.endOf(pod), false
	result, why := holds, ""
	for _, other := range l.Pods(l.node.Name) {
		switch {
		case !l.ran(other, s.Namespace, selector):
			continue
		case other.UID == pod.UID:
			exists = true
		case other.Status.Phase != corev1.PodFailed || other.CreationTimestamp.Before(&pod.CreationTimestamp):
			continue
		case other.CreationTimestamp.After(pod.CreationTimestamp.Time):
			return notYet, fmt.Sprintf("pod %s/%s was created after pod %s, which succeeded, and has failed", other.Namespace, other.Name, pod.Name)
		default: // which of them decides depends on their ends
			result, why = l.doubtful, "a pod that was created in the same second as a successful one has failed"
		}
	}
	if !exists {
		result, why = l.doubtful, "a pod has been deleted after its success"
	}
	if s.MaxAgeSeconds == nil {
		return result, why
	}
	switch age := l.now.Sub(ended.Add(time.Duration(*s.MaxAgeSeconds) * time.Second)); {
	case age >= heartbeatSkew:
		return notYet, fmt.Sprintf("the success of pod %s/%s is too old", pod.Namespace, pod.Name)
	case age >= 0:
		return l.doubtful, "a success expired just before"
	}
	return result, why
}

// endOf returns when a pod finished. The node's clock may be wrong: a time before the pod's
// creation or in the future is replaced by that of the creation.
func (l evaluator) endOf(pod *corev1.Pod) time.Time {
	var ended time.Time
	for i := range pod.Status.ContainerStatuses {
		if t := pod.Status.ContainerStatuses[i].State.Terminated; t != nil {
			ended = revisions.Later(ended, t.FinishedAt.Time)
		}
	}
	if ended.Before(pod.CreationTimestamp.Time) || ended.After(l.now) {
		return pod.CreationTimestamp.Time
	}
	return ended
}
