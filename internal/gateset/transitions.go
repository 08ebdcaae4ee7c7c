// SPDX-License-Identifier: Apache-2.0

package gateset

import (
	"slices"
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

// AreOn reports whether the node has the records of the transitions. The times of decisions do not
// matter: they are all that differs if an earlier attempt of the same write was carried out.
func (t *Transitions) AreOn(n *gate.Node) bool {
	for i := range t.Verdicts {
		name := t.Verdicts[i].Gate
		if withoutTimes(t.records[name]) != withoutTimes(n.Records[name]) {
			return false
		}
	}
	return t.Node.UID == n.UID
}

// Share reports whether records that are written include one of the transitions. Such a write
// tests what was there before, so it succeeds only if the transitions were not carried out.
func (t *Transitions) Share(records map[string]string) bool {
	return slices.ContainsFunc(t.Verdicts, func(v gate.Verdict) bool {
		_, shared := records[v.Gate]
		return shared
	})
}

func withoutTimes(record string) string {
	r, err := gate.ParseRecord(record)
	if err != nil {
		return record
	}
	r.Since, r.OverrideSince, r.SilentSince, r.FoughtAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return r.String()
}
