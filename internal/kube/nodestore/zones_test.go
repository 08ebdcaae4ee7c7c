// SPDX-License-Identifier: Apache-2.0

package nodestore

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/internal/gate"
)

// Nodes without a zone label, or with an empty one, form one zone: three unreachable ones
// make it partitioned. A node that changes its zone affects both zones.
func TestUnknownZones(t *testing.T) {
	silent := gate.Condition{Type: "Ready", Status: corev1.ConditionUnknown}
	node := func(name string, labels map[string]string) *resident {
		return residentOfFacts(&gate.Node{Name: name, Labels: labels, Conditions: []gate.Condition{silent}})
	}
	named := func(zone string) map[string]string { return map[string]string{corev1.LabelTopologyZone: zone} }
	z := make(Zones)
	none, empty, third := node("none", nil), node("empty", named("")), node("third", map[string]string{"other": "x"})
	z.move(nil, none)
	z.move(nil, empty)
	if got := z.Of(none.zone); got != (gate.Zone{Nodes: 2, Silent: 2}) || got.Partitioned() {
		t.Errorf("two without a zone: %+v", got)
	}
	if changed := z.move(nil, third); len(changed) != 3 || !z.Of(empty.zone).Partitioned() {
		t.Errorf("three: %+v, changed %v", z.Of(empty.zone), changed)
	}
	known := node("third", named("z"))
	if changed := z.move(third, known); len(changed) != 2 || z.Of(empty.zone).Partitioned() || z.Of(known.zone) != (gate.Zone{Nodes: 1, Silent: 1}) {
		t.Errorf("one has a zone: %+v and %+v, changed %v", z.Of(empty.zone), z.Of(known.zone), changed)
	}
	if got := z.Of("empty"); got != (gate.Zone{}) || got.Partitioned() {
		t.Errorf("a zone without nodes: %+v", got)
	}
	for _, n := range []*resident{none, empty, known} {
		z.move(n, nil)
	}
	if len(z) != 0 {
		t.Errorf("%d zones without nodes are left", len(z))
	}
}
