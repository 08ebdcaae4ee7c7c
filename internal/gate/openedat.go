// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strconv"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// stamps returns the annotations to be written that record when gates opened, by key. A
// gate that was never closed on the node, or that only ceases to select it, has not
// opened there.
func (d *decider) stamps() map[string]string {
	now := strconv.FormatInt(d.now.Unix(), 10)
	var out map[string]string
	for i := range d.slots {
		s := &d.slots[i]
		if s.keep || s.gate == nil || s.gate.Stamp == "" || !d.openedHere(s) || d.Node.Annotations[s.gate.Stamp] == now {
			continue
		}
		put(&out, s.gate.Stamp, now)
	}
	return out
}

// openedHere reports whether the gate, or its taint without a record, was closed on the
// node and opens by this decision.
func (d *decider) openedHere(s *slot) bool {
	v := s.verdict
	if v.After != v1alpha1.StateOpen {
		return false
	}
	return v.Before == v1alpha1.StateClosed || v.Before == "" && d.carriesOwn(s.gate)
}
