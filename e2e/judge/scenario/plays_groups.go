// SPDX-License-Identifier: Apache-2.0

package scenario

import corev1 "k8s.io/api/core/v1"

// groups registers the nodes of two racks. In each, the last node becomes fit after the
// others, which opens the rack. Then one node is lost: it closes alone in the first rack,
// and with its rack in the second. It becomes fit again.
func groups(p *play) {
	for _, gate := range []string{"rack", "slice"} {
		nodes := p.several(gate, func(object *corev1.Node) { object.Labels[rackLabel] = gate })
		lost := nodes[2]
		for _, n := range nodes[:2] {
			n.edit(labelled)
		}
		p.lingers()
		for _, n := range nodes {
			n.becomes(gate, closed)
		}
		lost.edit(labelled)
		for _, n := range nodes {
			n.becomes(gate, opened)
		}
		p.lingers()
		lost.edit(unlabelled)
		lost.becomes(gate, closed)
		others := opened
		if gate == "slice" {
			others = closed
		}
		for _, n := range nodes[:2] {
			n.becomes(gate, others)
		}
		p.lingers()
		lost.edit(labelled)
		for _, n := range nodes {
			n.becomes(gate, opened)
		}
	}
}
