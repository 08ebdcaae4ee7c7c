// SPDX-License-Identifier: Apache-2.0

package gateset_test

import (
	"testing"
	"time"

	"github.com/nodegate/nodegate/internal/cli/clitest"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

// Without signals, no signal holds, not even one that reads a label.
func TestWithoutSignals(t *testing.T) {
	broken := &gate.Node{Name: "n1", UID: "uid", Created: clitest.Now.Add(-time.Hour), Labels: map[string]string{"pool": "a", "broken": ""}}
	set := gateset.Reported(clitest.Declare(t, clitest.Follows))
	for name, c := range map[string]struct {
		set   *gateset.Set
		wants gate.Want
	}{"with signals": {set, gate.WantBudget}, "without signals": {set.WithoutSignals(), ""}} {
		d := c.set.DecideNode(broken, clitest.Now)
		if v := d.Verdict("follows"); v == nil || v.Wants != c.wants {
			t.Errorf("%s: the verdict is %+v", name, v)
		}
	}
}
