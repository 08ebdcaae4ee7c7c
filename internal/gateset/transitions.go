// SPDX-License-Identifier: Apache-2.0

package gateset

import (
	"time"

	"github.com/nodegate/nodegate/internal/gate"
)

// Transitions contains the openings, closings and passed deadlines of a write whose outcome is
// unknown.
type Transitions struct {
	Set *Set
	// Node is as it was before the write.
	Node     gate.Node
	Verdicts []gate.Verdict
	records  map[string]string
}

// TransitionsOf returns the transitions that the write of a decision carries out, or nil.
func TransitionsOf(set *Set, n *gate.Node, d *gate.Decision) *Transitions {
	t := &Transitions{Set: set, Node: *n, records: d.Records}
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if _, written := d.Records[v.Gate]; written && !v.DryRun && (v.Opened() || v.Closed() || v.PassedDeadline) {
			t.Verdicts = append(t.Verdicts, *v)
		}
	}
	if len(t.Verdicts) == 0 {
		return nil
	}
	return t
}

// AreOn reports whether the node has the records of the transitions. Their times do not matter:
// they are all that differs if an earlier attempt of the same write was carried out.
func (t *Transitions) AreOn(n *gate.Node) bool {
	for i := range t.Verdicts {
		name := t.Verdicts[i].Gate
		if withoutTime(t.records[name]) != withoutTime(n.Records[name]) {
			return false
		}
	}
	return t.Node.UID == n.UID
}

func withoutTime(record string) string {
	r, err := gate.ParseRecord(record)
	if err != nil {
		return record
	}
	r.Since = time.Time{}
	return r.String()
}
