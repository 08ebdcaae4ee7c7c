// SPDX-License-Identifier: Apache-2.0

package pending

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// filter decides whether a node fits a pod, like the scheduler's plugins for node selectors
// and affinity, taints, and resources. Other plugins are not represented: they depend on other
// pods (affinity, topology spread, ports), on volumes or on DRA claims.
type filter struct {
	pod      *corev1.Pod
	affinity nodeaffinity.RequiredNodeAffinity
	requests corev1.ResourceList
}

func newFilter(pod *corev1.Pod) *filter {
	return &filter{pod: pod, affinity: nodeaffinity.GetRequiredNodeAffinity(pod), requests: requestsOf(pod)}
}

// requestsOf returns the resources that a pod requests, with "pods" for itself.
func requestsOf(pod *corev1.Pod) corev1.ResourceList {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{UseStatusResources: true})
	requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return requests
}

// Add adds the requests of a bound pod to those of its node, unless the pod has finished.
func Add(requested map[string]corev1.ResourceList, pod *corev1.Pod) {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return
	}
	sum := requested[pod.Spec.NodeName]
	if sum == nil {
		sum = corev1.ResourceList{}
		requested[pod.Spec.NodeName] = sum
	}
	for name, quantity := range requestsOf(pod) {
		quantity.Add(sum[name])
		sum[name] = quantity
	}
}

// untolerated returns the taints of a node that keep the pod off.
func (f *filter) untolerated(n *Node) (taints []corev1.Taint) {
	all := n.Spec.Taints
	if n.Spec.Unschedulable { // as the scheduler, which does not rely on the taint
		all = append(slices.Clone(all), corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	for i := range all {
		if all[i].Effect != corev1.TaintEffectPreferNoSchedule && !gate.Tolerates(f.pod.Spec.Tolerations, all[i]) {
			taints = append(taints, all[i])
		}
	}
	return taints
}

// obstacles returns the first reason, apart from gates, why the pod does not fit a node, or "".
// taints are the untolerated taints that belong to no gate. Reasons that are expected to end while
// the node is set up are returned separately.
func (f *filter) obstacles(n *Node, taints []corev1.Taint, s *setup) (lasting string, temporary []string) {
	if matches, err := f.affinity.Match(n.Node); err != nil {
		return "the pod's node affinity is invalid: " + err.Error(), nil
	} else if !matches {
		return "the pod's node selector or affinity does not match", nil
	}
	for i := range taints {
		message := "the pod does not tolerate " + gate.TaintText(v1alpha1.TaintOf(taints[i]))
		if !s.removes(&taints[i]) {
			return message, nil
		}
		temporary = append(temporary, message)
	}
	for _, name := range slices.Sorted(maps.Keys(f.requests)) {
		want := f.requests[name].DeepCopy() // Add may change the original
		if want.IsZero() {
			continue
		}
		if want.Add(n.Requested[name]); want.Cmp(n.Status.Allocatable[name]) <= 0 {
			continue
		}
		message := "insufficient " + string(name)
		if !s.adds(name, want) {
			return message, nil
		}
		temporary = append(temporary, message)
	}
	return "", temporary
}
