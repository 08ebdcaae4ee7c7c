// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Birth returns what a Node must carry when it is created, given the gates that close
// at birth. The result is that of Decide at a time when no signal can hold yet. It does
// not depend on a clock, so its taints and records are byte-identical to what the API
// server's birth policy writes, and it does not matter which of the two runs first.
//
// Records that the Node was submitted with are not trusted. They are overwritten, or
// removed if their gate does not select the Node. The result covers only the records of
// the given gates: the caller must remove all others, as the policy does.
// Taints starts with the Node's own taints, unchanged, even if the value of one differs
// from the gate's: the controller corrects it later.
func Birth(gates []Gate, n Node) Decision {
	sent := n.Records
	n.Records, n.Created = nil, time.Time{}
	unborn := make([]Gate, len(gates))
	for i, g := range gates {
		g.Signals = []NamedSignal{{Signal: nothingYet{}}}
		g.Deadline = Deadline{} // its clock has not started
		g.RecloseTaint = v1alpha1.Taint{}
		unborn[i] = g
		// A Node is always younger than a gate that closes at its birth, even if the
		// clocks differ.
		if g.Created.After(n.Created) {
			n.Created = g.Created
		}
	}
	d := Decide(unborn, &Facts{Node: n}, n.Created)
	d.Recheck, d.Again = time.Time{}, false
	copy(d.Taints, n.Taints)
	d.forgetTime(len(n.Taints))
	for i := range gates {
		name := gates[i].Name
		raw, came := sent[name]
		switch written, ok := d.Records[name]; {
		case came && ok && written == raw:
			delete(d.Records, name)
		case came && !ok:
			put(&d.Records, name, "")
		}
	}
	d.Changes = len(d.Records) > 0 || !sameTaints(n.Taints, d.Taints)
	return d
}

// Writable returns an error if the API server would reject a new Node with the record and
// the taint of a gate. The CRD's rules admit no such NodeGate.
func Writable(name string, taint v1alpha1.Taint) error {
	var errs []error
	if msgs := validation.IsDNS1123Label(name); msgs != nil {
		errs = append(errs, fmt.Errorf("name: %s", strings.Join(msgs, "; ")))
	}
	if _, err := ParseTaintID(IDOf(taint).String()); err != nil {
		errs = append(errs, fmt.Errorf("taint %w", err))
	}
	if msgs := validation.IsValidLabelValue(taint.Value); msgs != nil {
		errs = append(errs, fmt.Errorf("taint value %q: %s", taint.Value, strings.Join(msgs, "; ")))
	}
	return errors.Join(errs...)
}

// forgetTime removes the times from records and from all taints after the first n,
// because the birth policy, which has no clock, cannot write them.
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

// nothingYet stands in for any signal before the Node exists.
type nothingYet struct{}

func (nothingYet) Read(Input) Reading            { return Reading{State: NotYet} }
func (nothingYet) Evidence(*Facts) ([]Pod, bool) { return nil, true }
func (nothingYet) ProvesBoot() bool              { return false }
func (nothingYet) Needs(*DaemonSets) Needs       { return Needs{} }

func sameTaints(a, b []corev1.Taint) bool {
	return slices.EqualFunc(a, b, func(a, b corev1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value })
}
