// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
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

// outage makes a node unreachable for a moment on which a gate with a deadline is closed. Its
// clock stands still meanwhile: the record contains for how long.
func outage(p *play) {
	n := p.registers("outage", "later")
	recorded := func(field string) func(context.Context) error {
		return func(context.Context) error {
			if raw := n.get().Annotations[v1alpha1.RecordAnnotationPrefix+"later"]; !strings.Contains(raw, field) {
				return fmt.Errorf("the record is %s", raw)
			}
			return nil
		}
	}
	n.reports(corev1.NodeReady, corev1.ConditionUnknown)
	p.await("the beginning of an outage to be recorded", recorded("silentSince"))
	n.untilNextSecond()
	n.reports(corev1.NodeReady, corev1.ConditionTrue)
	p.await("the time of an outage to be recorded", recorded("silentSeconds"))
}
