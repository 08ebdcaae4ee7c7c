// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"fmt"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/e2e/judge/outages"
)

func (t *trial) outages() outages.Observer {
	return outages.Observer{History: t.History, Controller: t.Controller, Lag: t.Lag}
}

// judgeSilence judges the time for which, according to a record, the node has been unreachable
// since the gate closed (S4): the node can have been so for as long. The clock of the gate's
// deadline stands still for that time.
func (t *trial) judgeSilence(c *change, gate string, before, after record) {
	since := after.Since
	if since.IsZero() {
		since = c.before.CreationTimestamp.Time
	}
	if after.State != v1alpha1.StateClosed || after.SilentFor == before.SilentFor || after.SilentFor == 0 || !t.keptClock(c, gate, since) {
		return
	}
	t.checked(RuleClosing, "times for which nodes were unreachable")
	recorded, most := time.Duration(after.SilentFor)*time.Second, t.outages().Possible(c.before, since, c.revision)
	if recorded > most {
		t.violation(RuleClosing, c, gate, fmt.Sprintf("nodegate records that the node was unreachable for %s", recorded),
			"since the gate closed, it was so for at most %s", most.Round(time.Millisecond))
	}
}
