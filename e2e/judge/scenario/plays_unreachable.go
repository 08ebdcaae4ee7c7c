// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// noExecute makes a node unreachable on which a gate with NoExecute is open. The gate stays open, and
// closes when the node reboots.
func noExecute(p *play) {
	n := p.registers("evicting", "evicting", labelled)
	n.becomes("evicting", opened)
	n.reports(corev1.NodeReady, corev1.ConditionUnknown)
	p.lingers()
	n.stays("evicting", opened)
	n.reports(corev1.NodeReady, corev1.ConditionTrue)
	n.edit(unlabelled)
	n.untilNextSecond()
	n.reboots()
	n.becomes("evicting", closed)
	n.edit(labelled)
	n.becomes("evicting", opened)
}

// settles is how long a node of a zone with three nodes must be unreachable before its gates close.
const settles = 5 * time.Second

// partition makes a node unreachable in a zone whose two other nodes are unreachable. The gate
// stays open. When it could close, the zone has been in this state for longer than lag: otherwise,
// a write might be based on the state before.
func partition(p *play) {
	zone := inZone("partition")
	n := p.registers("partition", "partition", zone, labelled)
	for _, name := range []string{"partition-1", "partition-2"} {
		p.registers(name, "partition", zone, withCondition(corev1.NodeReady, corev1.ConditionUnknown))
	}
	n.becomes("partition", opened)
	p.pause(lag - settles + time.Second)
	n.reports(corev1.NodeReady, corev1.ConditionUnknown)
	p.pause(settles)
	p.lingers()
	n.stays("partition", opened)
	n.reports(corev1.NodeReady, corev1.ConditionTrue)
}
