// SPDX-License-Identifier: Apache-2.0

package wire

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// workload decodes a pod as Options.Workloads requires.
func (d *decoder) workload(message []byte, p *corev1.Pod) error {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 1:
			c.check(d.workloadMeta(c.message(), &p.ObjectMeta))
		case 2:
			c.check(d.workloadSpec(c.message(), &p.Spec))
		case 3:
			c.check(d.workloadStatus(c.message(), &p.Status))
		}
	}
	return c.err
}

func (d *decoder) workloadMeta(message []byte, m *metav1.ObjectMeta) error {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 12:
			key, value, err := pair(c.message())
			if c.check(err); string(key) == corev1.MirrorPodAnnotationKey {
				m.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: string(value)}
			}
		case 13:
			c.check(d.workloadOwner(c.message(), appendOne(&m.OwnerReferences, message, 13)))
		case 17:
			if d.options.Rejections {
				c.check(appendOne(&m.ManagedFields, message, 17).Unmarshal(c.message()))
			}
		default:
			d.identity(&c, m)
		}
	}
	return c.err
}

func (d *decoder) workloadOwner(message []byte, o *metav1.OwnerReference) error {
	c := cursor{rest: message}
	for c.next() {
		if c.number == 1 {
			o.Kind = d.texts.of(c.message())
		}
	}
	if c.err != nil {
		return c.err
	}
	return d.owner(message, o)
}

func (d *decoder) workloadSpec(message []byte, s *corev1.PodSpec) error {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 10:
			s.NodeName = d.texts.of(c.message())
		case 11:
			s.HostNetwork = c.integer() != 0
		case 22:
			c.check(d.toleration(c.message(), appendOne(&s.Tolerations, message, 22)))
		}
	}
	return c.err
}

func (d *decoder) toleration(message []byte, t *corev1.Toleration) error {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 1:
			t.Key = d.texts.of(c.message())
		case 2:
			t.Operator = corev1.TolerationOperator(d.texts.of(c.message()))
		case 3:
			t.Value = d.texts.of(c.message())
		case 4:
			t.Effect = corev1.TaintEffect(d.texts.of(c.message()))
		case 5:
			t.TolerationSeconds = new(c.integer())
		}
	}
	return c.err
}

func (d *decoder) workloadStatus(message []byte, s *corev1.PodStatus) error {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 1:
			s.Phase = corev1.PodPhase(d.texts.of(c.message()))
		case 2:
			c.check(d.podCondition(c.message(), appendOne(&s.Conditions, message, 2)))
		case 8:
			c.check(workloadContainer(c.message(), appendOne(&s.ContainerStatuses, message, 8)))
		case 4:
			if d.options.Rejections {
				s.Reason = d.texts.of(c.message())
			}
		case 7:
			if d.options.Rejections {
				c.check(timestamp(c.message(), &s.StartTime))
			}
		case 10:
			c.check(workloadContainer(c.message(), appendOne(&s.InitContainerStatuses, message, 10)))
		}
	}
	return c.err
}

func workloadContainer(message []byte, s *corev1.ContainerStatus) error {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 2:
			c.check(s.State.Unmarshal(c.message()))
		case 3:
			c.check(s.LastTerminationState.Unmarshal(c.message()))
		case 5:
			s.RestartCount = int32(c.integer()) //nolint:gosec // as generated code does
		}
	}
	return c.err
}
