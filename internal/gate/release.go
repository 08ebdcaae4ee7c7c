// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Released describes how gates are removed from a node.
type Released struct {
	// Decision is the desired state of the node, without taints, records and overrides
	// of the gates. It changes nothing if there is nothing to remove.
	Decision
	// Gates contains the gates that are removed from the node, sorted.
	Gates []string
	// Removed contains the taints that are removed, in the node's order.
	Removed []corev1.Taint
	// Kept contains the gates whose records stay, sorted. These records cannot be read,
	// and the node carries a taint that may belong to them.
	Kept []string
}

// Release returns the desired state of a node without the named gates, whether they
// still exist or not. It removes their records, overrides and conditions, and the taints that the
// records account for. It changes nothing else: no taint without a record, no taint
// that the record of another gate accounts for as well, and no stamp, because records
// do not account for stamps.
//
// It depends only on the Node. It is used when no controller is running any longer.
func Release(n *Node, named func(gate string) bool) Released {
	out := Released{Decision: Decision{Taints: slices.Clone(n.Taints)}}
	own, others := make(map[TaintID]bool), make(map[TaintID]bool)
	var garbled []string
	for _, name := range slices.Sorted(maps.Keys(n.Records)) {
		r, err := ParseRecord(n.Records[name])
		switch {
		case err != nil && named(name):
			garbled = append(garbled, name)
			continue
		case err != nil:
			continue
		case r.tainted() && named(name):
			own[IDOf(r.RecordedTaint())] = true
		case r.tainted():
			others[IDOf(r.RecordedTaint())] = true
		}
		if named(name) {
			out.forget(name)
		}
	}
	out.Taints = slices.DeleteFunc(out.Taints, func(t corev1.Taint) bool {
		at := TaintID{t.Key, t.Effect}
		goes := own[at] && !others[at]
		if goes {
			out.Removed = append(out.Removed, t)
		}
		return goes
	})
	suspect := slices.ContainsFunc(out.Taints, func(t corev1.Taint) bool {
		return !others[TaintID{t.Key, t.Effect}] && !strings.HasPrefix(t.Key, v1alpha1.CoreTaintPrefix)
	})
	for _, name := range garbled {
		if suspect {
			out.Kept = append(out.Kept, name)
		} else {
			out.forget(name)
		}
	}
	out.withdraw(n, named)
	out.unpublish(n, named)
	slices.Sort(out.Gates)
	out.Gates = slices.Compact(out.Gates)
	out.Changes = len(out.Gates) > 0
	return out
}

// forget removes a gate's record.
func (r *Released) forget(name string) {
	put(&r.Records, name, "")
	r.Gates = append(r.Gates, name)
}

// withdraw removes the overrides of the named gates.
func (r *Released) withdraw(n *Node, named func(string) bool) {
	for name := range n.Overrides {
		if !named(name) || slices.Contains(r.Kept, name) {
			continue
		}
		put(&r.Withdrawn, name, "")
		r.Gates = append(r.Gates, name)
	}
}

// unpublish removes the conditions of the named gates. Otherwise, a remediation controller
// would replace nodes that nothing holds any longer.
func (r *Released) unpublish(n *Node, named func(string) bool) {
	for name := range n.published() {
		if named(name) {
			put(&r.Conditions, name, nil)
			r.Gates = append(r.Gates, name)
		}
	}
}
