// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// checks runs pods that finish. None counts that failed, that is being deleted, or whose label
// does not name the node's boot. A success counts until the node reboots, and continues to count
// when its pod is deleted.
func checks(p *play) {
	unlabelled, failed, deleted := p.registers("check-unlabelled", "check"), p.registers("check-failed", "check"), p.registers("check-deleted", "check")
	n := p.registers("check", "check")

	unlabelled.finishes(unlabelled.job(""), corev1.PodSucceeded)
	failed.finishes(failed.job(failed.BootID), corev1.PodFailed)
	terminating := deleted.job(deleted.BootID)
	p.deletes(terminating)
	deleted.finishes(terminating, corev1.PodSucceeded)
	n.finishes(n.job("another"), corev1.PodSucceeded)
	p.lingers()
	for _, other := range []*node{unlabelled, failed, deleted, n} {
		other.stays("check", closed)
	}

	n.finishes(n.job(n.BootID), corev1.PodSucceeded)
	n.becomes("check", opened)
	n.untilNextSecond()
	n.reboots()
	n.becomes("check", closed)
	p.lingers()
	n.stays("check", closed)

	pod := n.job(n.BootID)
	n.reports(corev1.NodeReady, corev1.ConditionUnknown)
	n.finishes(pod, corev1.PodSucceeded)
	p.lingers()
	p.deletes(pod)
	p.lingers()
	n.stays("check", closed)
	n.reports(corev1.NodeReady, corev1.ConditionTrue)
	n.becomes("check", opened)
}

// job creates a pod of the check on the node. Its label names a boot, unless that is empty.
func (n *node) job(boot string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: n.Name + "-" + string(uuid.NewUUID())[:8], Labels: map[string]string{"app": "check"}},
		Spec: corev1.PodSpec{
			NodeName: n.Name, RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "check", Image: "check"}},
		},
	}
	if boot != "" {
		pod.Labels[v1alpha1.BootLabel] = boot
	}
	n.creates(pod)
	return pod
}

// finishes reports that a pod has finished, as the kubelet.
func (n *node) finishes(pod *corev1.Pod, phase corev1.PodPhase) {
	n.runs(pod, false, func(s *corev1.PodStatus) { s.Phase = phase })
}
