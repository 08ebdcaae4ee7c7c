// SPDX-License-Identifier: Apache-2.0

package gateset_test

import (
	"fmt"
	"testing"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// SetGroups tells each node about the other nodes of its group, as the controller does.
func TestSetGroups(t *testing.T) {
	set := gateset.Reported(clitest.Declare(t, clitest.ByLabel("agent", "openTogether: {labelKey: rack, atLeast: 2}")))
	var nodes []gate.Facts
	for i, labels := range []map[string]string{{"rack": "r1", "fit": ""}, {"rack": "r1"}, {"rack": "r1", "fit": ""}, {"rack": "r2", "fit": ""}, {"fit": ""}} {
		name := fmt.Sprintf("n%d", i)
		nodes = append(nodes, gate.Facts{Node: gate.Node{Name: name, UID: "uid", Created: clitest.Now, BootID: "b", Labels: labels,
			Records: map[string]string{"agent": clitest.Birth}}, DaemonSets: &gate.DaemonSets{}})
	}
	set.SetGroups(nodes, clitest.Now)
	for i, want := range []struct {
		fit, unfit int
		state      string
	}{{1, 1, v1alpha1.StateOpen}, {2, 0, v1alpha1.StateClosed}, {1, 1, v1alpha1.StateOpen}, {0, 0, v1alpha1.StateClosed}, {0, 0, v1alpha1.StateClosed}} {
		group := nodes[i].Groups["agent"]
		d := set.Decide(&nodes[i], clitest.Now)
		if v := d.Verdict("agent"); group.Fit != want.fit || group.UnfitCount != want.unfit || !group.Known || v.After != want.state {
			t.Errorf("n%d: group %+v, and the gate is %s; want %+v", i, group, v.After, want)
		}
	}
	without := gateset.Reported(clitest.Declare(t, clitest.ByLabel("agent", "")))
	nodes[0].Groups = nil
	if without.SetGroups(nodes, clitest.Now); nodes[0].Groups != nil {
		t.Errorf("without a gate that opens together: %+v", nodes[0].Groups)
	}
}
