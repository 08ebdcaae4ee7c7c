// SPDX-License-Identifier: Apache-2.0

package wire

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func (d *decoder) nodeList(message []byte, l *corev1.NodeList) error {
	return list(message, &l.ListMeta, &l.Items, d.node)
}

func (d *decoder) node(message []byte, n *corev1.Node) error {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 1:
			c.check(d.meta(c.message(), &n.ObjectMeta))
		case 2:
			c.check(d.nodeSpec(c.message(), &n.Spec))
		case 3:
			c.check(d.nodeStatus(c.message(), &n.Status))
		}
	}
	return c.err
}

func (d *decoder) nodeSpec(message []byte, s *corev1.NodeSpec) error {
	c := cursor{rest: message}
	for c.next() {
		if c.number == 5 {
			c.check(d.taint(c.message(), appendOne(&s.Taints, message, 5)))
		}
	}
	return c.err
}

func (d *decoder) taint(message []byte, t *corev1.Taint) error {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 1:
			t.Key = d.texts.of(c.message())
		case 2:
			t.Value = d.texts.of(c.message())
		case 3:
			t.Effect = corev1.TaintEffect(d.texts.of(c.message()))
		case 4:
			c.check(timestamp(c.message(), &t.TimeAdded))
		}
	}
	return c.err
}

func (d *decoder) nodeStatus(message []byte, s *corev1.NodeStatus) error {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 2:
			grow(&s.Allocatable, message, 2)
			c.check(d.quantity(c.message(), s.Allocatable))
		case 4:
			c.check(d.nodeCondition(c.message(), appendOne(&s.Conditions, message, 4)))
		case 7:
			c.check(d.nodeInfo(c.message(), &s.NodeInfo))
		}
	}
	return c.err
}

// quantity decodes one entry of a resource list.
func (d *decoder) quantity(message []byte, into corev1.ResourceList) error {
	key, value, err := pair(message)
	if err != nil {
		return err
	}
	var q resource.Quantity
	if err := q.Unmarshal(value); err != nil {
		return err
	}
	into[corev1.ResourceName(d.texts.of(key))] = q
	return nil
}

func (d *decoder) nodeCondition(message []byte, n *corev1.NodeCondition) error {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 1:
			n.Type = corev1.NodeConditionType(d.texts.of(c.message()))
		case 2:
			n.Status = corev1.ConditionStatus(d.texts.of(c.message()))
		case 3:
			c.check(n.LastHeartbeatTime.Unmarshal(c.message()))
		case 4:
			c.check(n.LastTransitionTime.Unmarshal(c.message()))
		case 6:
			n.Message = d.texts.of(c.message())
		}
	}
	return c.err
}

func (d *decoder) nodeInfo(message []byte, i *corev1.NodeSystemInfo) error {
	c := cursor{rest: message}
	for c.next() {
		switch c.number {
		case 1:
			i.MachineID = c.text()
		case 2:
			i.SystemUUID = c.text()
		case 3:
			i.BootID = c.text()
		case 4:
			i.KernelVersion = d.texts.of(c.message())
		case 5:
			i.OSImage = d.texts.of(c.message())
		case 6:
			i.ContainerRuntimeVersion = d.texts.of(c.message())
		case 7:
			i.KubeletVersion = d.texts.of(c.message())
		case 9:
			i.OperatingSystem = d.texts.of(c.message())
		case 10:
			i.Architecture = d.texts.of(c.message())
		}
	}
	return c.err
}
