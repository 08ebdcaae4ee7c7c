// SPDX-License-Identifier: Apache-2.0

package wire

import corev1 "k8s.io/api/core/v1"

func (d *decoder) podList(message []byte, l *corev1.PodList) error {
	if d.options.Workloads {
		return list(message, &l.ListMeta, &l.Items, d.workload)
	}
	return list(message, &l.ListMeta, &l.Items, d.pod)
}

func (d *decoder) pod(message []byte, p *corev1.Pod) error {
	if d.options.Workloads {
		return d.workload(message, p)
	}
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 1:
			c.check(d.meta(c.message(), &p.ObjectMeta))
		case 2:
			c.check(d.podSpec(c.message(), &p.Spec))
		case 3:
			c.check(d.podStatus(c.message(), &p.Status))
		}
	}
	return c.err
}

func (d *decoder) podSpec(message []byte, s *corev1.PodSpec) error {
	c := cursor{rest: message}
	for c.next() {
		if c.number == 10 {
			s.NodeName = c.text()
		}
	}
	return c.err
}

func (d *decoder) podStatus(message []byte, s *corev1.PodStatus) error {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 1:
			s.Phase = corev1.PodPhase(d.texts.of(c.message()))
		case 2:
			c.check(d.podCondition(c.message(), appendOne(&s.Conditions, message, 2)))
		case 8:
			c.check(d.containerStatus(c.message(), appendOne(&s.ContainerStatuses, message, 8)))
		}
	}
	return c.err
}

func (d *decoder) podCondition(message []byte, p *corev1.PodCondition) error {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 1:
			p.Type = corev1.PodConditionType(d.texts.of(c.message()))
		case 2:
			p.Status = corev1.ConditionStatus(d.texts.of(c.message()))
		case 4:
			c.check(p.LastTransitionTime.Unmarshal(c.message()))
		}
	}
	return c.err
}

func (d *decoder) containerStatus(message []byte, s *corev1.ContainerStatus) error {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 2:
			if d.options.ContainerStates {
				c.check(s.State.Unmarshal(c.message()))
			}
		case 8:
			s.ContainerID = c.text()
		}
	}
	return c.err
}
