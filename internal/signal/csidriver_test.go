// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// csiNode returns a node with the UID u, whose CSINode has this owner.
func csiNode(owner types.UID, drivers map[string]bool) *world {
	return aNode(func(w *world) {
		w.facts.Node.UID = "u"
		w.facts.CSINode = gate.CSINode{Observed: true, Owner: owner, Drivers: drivers}
	})
}

func TestCSIDriver(t *testing.T) {
	const (
		name    = "ebs.csi.aws.com"
		subject = "CSI driver " + name
		limit   = "volume limit of " + subject
		former  = v1alpha1.ReadingFormerNode
		unseen  = v1alpha1.ReadingNotObserved
	)
	registered, limited := map[string]bool{name: false}, map[string]bool{"other": true, name: true}
	unobserved := aNode(func(w *world) { w.facts.CSINode = gate.CSINode{} })
	check(t, mustCompile(t, v1alpha1.SignalSource{CSIDriver: &v1alpha1.CSIDriverSignal{Name: name}}), map[string]reads{
		"registered":                {csiNode("u", registered), gate.Holds, matches, subject},
		"registered with its limit": {csiNode("u", limited), gate.Holds, matches, subject},
		"another driver":            {csiNode("u", map[string]bool{name + ".x": true}), gate.NotYet, absent, subject},
		"no driver":                 {csiNode("u", nil), gate.NotYet, absent, subject},
		"no CSINode":                {csiNode("", nil), gate.NotYet, absent, subject},
		"of the former Node":        {csiNode("former", limited), gate.NotYet, former, subject},
		"without an owner":          {csiNode("", limited), gate.NotYet, v1alpha1.ReadingNotOwned, "the CSINode with " + subject},
		"not observed":              {unobserved, gate.Unknown, unseen, subject},
	})
	s := mustCompile(t, v1alpha1.SignalSource{CSIDriver: &v1alpha1.CSIDriverSignal{Name: name, Allocatable: true}})
	check(t, s, map[string]reads{
		"limit: known":              {csiNode("u", limited), gate.Holds, matches, subject},
		"limit: not yet":            {csiNode("u", registered), gate.NotYet, absent, limit},
		"limit: no driver":          {csiNode("u", nil), gate.NotYet, absent, subject},
		"limit: of the former Node": {csiNode("former", limited), gate.NotYet, former, subject},
		"limit: not observed":       {unobserved, gate.Unknown, unseen, subject},
	})
	if n := s.Needs(nil); !n.CSINodes || s.ProvesBoot() {
		t.Errorf("needs = %+v, proves boot: %v", n, s.ProvesBoot())
	}
}
