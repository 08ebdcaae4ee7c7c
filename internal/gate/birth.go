// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Birth says what is to be on a Node that is being created, for the gates given:
// those that close at birth. It is Decide at a moment at which no signal can
// hold, without a clock, and so the same to the byte as what the API server's own
// policy writes, whichever of the two comes first.
//
// A record that came along with the Node is not to be believed: it is written
// over, or erased where its gate does not select the Node. Records of other gates
// stay. Taints begins with the Node's own, as they are, also where the value is
// not the gate's: the controller corrects it.
func Birth(gates []Gate, n Node) Decision {
	sent := n.Records
	n.Records, n.Created = nil, time.Time{}
	unborn := make([]Gate, len(gates))
	for i, g := range gates {
		g.Signals = []NamedSignal{{Signal: nothingYet{}}}
		g.Deadline = Deadline{} // its clock does not run yet
		g.RecloseTaint = v1alpha1.Taint{}
		unborn[i] = g
		// However much the clocks differ, a Node is younger than the gate that it
		// is born into.
		if g.Created.After(n.Created) {
			n.Created = g.Created
		}
	}
	d := Decide(unborn, &Facts{Node: n}, n.Created)
	d.Recheck = time.Time{}
	copy(d.Taints, n.Taints)
	d.forgetTime(len(n.Taints))
	for i := range gates {
		name := gates[i].Name
		raw, came := sent[name]
		switch written, ok := d.Records[name]; {
		case came && ok && written == raw:
			delete(d.Records, name)
		case came && !ok:
			if d.Records == nil {
				d.Records = make(map[string]string)
			}
			d.Records[name] = ""
		}
	}
	d.Changes = len(d.Records) > 0 || !sameTaints(n.Taints, d.Taints)
	return d
}

// forgetTime removes what a policy, which has no clock, could not have written,
// from the records and from the taints after the first n.
func (d *Decision) forgetTime(n int) {
	for name, raw := range d.Records {
		if r, err := ParseRecord(raw); err == nil {
			r.Since = time.Time{}
			d.Records[name] = r.String()
		}
	}
	for i := n; i < len(d.Taints); i++ {
		d.Taints[i].TimeAdded = nil
	}
}

// nothingYet stands for any signal before the Node exists.
type nothingYet struct{}

func (nothingYet) Read(Input) Reading            { return Reading{State: NotYet} }
func (nothingYet) Evidence(*Facts) ([]Pod, bool) { return nil, true }
func (nothingYet) ProvesBoot() bool              { return false }
func (nothingYet) Needs(*DaemonSets) Needs       { return Needs{} }

func sameTaints(a, b []corev1.Taint) bool {
	return slices.EqualFunc(a, b, func(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value })
}
