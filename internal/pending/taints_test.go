// SPDX-License-Identifier: Apache-2.0

package pending_test

import (
	"strings"
	"testing"

	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gateset"
	"github.com/nodegate/nodegate/internal/pending"
)

// A gate counts a node once, whichever of its taints the node carries, and also if the controller is
// about to adopt the taint.
func TestTaintsOfAGate(t *testing.T) {
	for name, n := range map[string]pending.Node{
		"the taint of the record, and that of the gate": node("n1", tainted("example.com/again"), tainted("example.com/b"), func(n *pending.Node) {
			n.Facts.Node.Records["other"] = strings.Replace(birthOfOther, "example.com/b", "example.com/again", 1)
		}),
		"a taint that the gate is about to adopt": node("n1", tainted("example.com/b")),
	} {
		e := pending.Of(&pending.Facts{
			Object: "pod web/frontend", Pod: pod(), Nodes: []pending.Node{n}, Gates: gateset.Reported(clitest.Declare(t, agent, other)), Now: clitest.Now,
		})
		if e.WouldFit != 1 || e.KeptOff != 1 || len(e.Gates) != 1 || len(e.Gates[0].Nodes) != 1 || len(e.Others) > 0 {
			t.Errorf("%s: want one gate that is closed on one node:\n%s", name, e.Text())
		}
	}
}
