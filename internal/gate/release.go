// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Released is what it takes to make a node forget gates.
type Released struct {
	// Decision is what is to be written: no more taint, record or override of the
	// gates. It changes nothing where there is nothing to forget.
	Decision
	// Gates are the gates that the node forgets, sorted.
	Gates []string
	// Taken are the taints that come off, in the node's order.
	Taken []corev1.Taint
	// Kept are gates whose records stay, sorted: they cannot be read, and a taint is
	// on the node that may be what they tell of.
	Kept []string
}

// Release decides what makes a node forget the gates that are named, whether they
// still exist or not: their records and overrides go, and the taints that the
// records account for. Nothing else is touched: not a taint that no record tells
// of, nor one that the record of a gate which is not named accounts for too, and
// no stamp, since no record says that there is one.
//
// It knows nothing but the Node. It is for when nobody decides any more.
func Release(n *Node, named func(gate string) bool) Released {
	out := Released{Decision: Decision{Taints: slices.Clone(n.Taints)}}
	own, others := make(map[heldTaint]bool), make(map[heldTaint]bool)
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
			own[r.held()] = true
		case r.tainted():
			others[r.held()] = true
		}
		if named(name) {
			out.forget(name)
		}
	}
	out.Taints = slices.DeleteFunc(out.Taints, func(t corev1.Taint) bool {
		at := heldTaint{t.Key, t.Effect}
		goes := own[at] && !others[at]
		if goes {
			out.Taken = append(out.Taken, t)
		}
		return goes
	})
	suspect := slices.ContainsFunc(out.Taints, func(t corev1.Taint) bool {
		return !others[heldTaint{t.Key, t.Effect}] && !strings.HasPrefix(t.Key, v1alpha1.CoreTaintPrefix)
	})
	for _, name := range garbled {
		if suspect {
			out.Kept = append(out.Kept, name)
		} else {
			out.forget(name)
		}
	}
	out.withdraw(n, named)
	out.Changes = len(out.Gates) > 0
	return out
}

// forget drops a gate's record.
func (r *Released) forget(name string) {
	if r.Records == nil {
		r.Records = make(map[string]string)
	}
	r.Records[name] = ""
	r.Gates = append(r.Gates, name)
}

// withdraw takes off what people wanted of the gates.
func (r *Released) withdraw(n *Node, named func(string) bool) {
	for name := range n.Overrides {
		if !named(name) || slices.Contains(r.Kept, name) {
			continue
		}
		if r.Withdrawn == nil {
			r.Withdrawn = make(map[string]string)
		}
		r.Withdrawn[name] = ""
		r.Gates = append(r.Gates, name)
	}
	slices.Sort(r.Gates)
	r.Gates = slices.Compact(r.Gates)
}

// heldTaint names a taint: a node has no two of a key and effect.
type heldTaint struct {
	key    string
	effect corev1.TaintEffect
}

// held is the taint that the record tells of.
func (r *Record) held() heldTaint {
	t, _ := parseTaint(r.Taint)
	return heldTaint{t.Key, t.Effect}
}
