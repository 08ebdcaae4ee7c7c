// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"strconv"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// stamps returns the annotations that tell when gates opened, by key, as far as
// they are to be written. A gate that a node joins open, or that just lets go
// of the node, has not opened on it.
func (d *decider) stamps() map[string]string {
	now := strconv.FormatInt(d.now.Unix(), 10)
	var out map[string]string
	for i := range d.slots {
		s := &d.slots[i]
		if s.keep || s.gate == nil || s.gate.Stamp == "" || !d.openedHere(s) || d.Node.Annotations[s.gate.Stamp] == now {
			continue
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[s.gate.Stamp] = now
	}
	return out
}

// openedHere tells whether the gate, or its taint that nobody accounts for, was
// closed on the node, and is open by this decision.
func (d *decider) openedHere(s *slot) bool {
	v := s.verdict
	if v.After != v1alpha1.StateOpen {
		return false
	}
	return v.Before == v1alpha1.StateClosed || v.Before == "" && d.carriesOwn(s.gate)
}
