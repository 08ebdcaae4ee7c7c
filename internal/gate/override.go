// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Overrides.
//
// A user can force a gate to be open or closed on one node for a limited time with an
// annotation on the Node. Under the override, the gate is still evaluated, and its record
// keeps the state that the gate would have. The override determines only whether
// the taint is on the node in the meantime. If the two differ, the record notes the
// override, because it determines whether the record accounts for the taint. When the
// override ends, the node gets the gate's own state. See docs/decisions/0020.
//
// An override contains the UID of its Node. The UID does not exist before the Node is
// created, so a kubelet cannot register with an override.

// OverrideMax is the maximum time until the end of an override. Decide enforces it,
// because an admission policy has no clock.
const OverrideMax = 7 * 24 * time.Hour

// overrideReasonMax is the maximum length of an override's reason, in characters.
const overrideReasonMax = 256

// Override is the content of the annotation override.nodegate.dev/<gate>.
type Override struct {
	// State is the state of the gate on the node: StateOpen or StateClosed.
	State string `json:"state"`
	// Until is the time at which the override ends.
	Until time.Time `json:"until"`
	// Reason is the reason that the user gave.
	Reason string `json:"reason"`
	// UID is the UID of the Node.
	UID types.UID `json:"uid"`
}

// ParseOverride parses an override.
func ParseOverride(raw string) (Override, error) {
	var o Override
	in := json.NewDecoder(bytes.NewReader([]byte(raw)))
	in.DisallowUnknownFields()
	if err := in.Decode(&o); err != nil {
		return Override{}, fmt.Errorf("reading the override: %w", err)
	}
	switch n := utf8.RuneCountInString(o.Reason); {
	case in.More():
		return Override{}, errors.New("reading the override: unexpected data after the object")
	case o.State != v1alpha1.StateOpen && o.State != v1alpha1.StateClosed:
		return Override{}, fmt.Errorf("state %q is neither %s nor %s", o.State, v1alpha1.StateOpen, v1alpha1.StateClosed)
	case o.Until.IsZero():
		return Override{}, errors.New("until is missing")
	case o.Until.UTC().Year() < 0 || o.Until.UTC().Year() > 9999: // it could not be marshalled
		return Override{}, fmt.Errorf("until %s is out of range", o.Until)
	case n == 0 || n > overrideReasonMax:
		return Override{}, fmt.Errorf("the reason has %d characters; use 1 to %d characters", n, overrideReasonMax)
	}
	return o, nil
}

// String returns the override as it is written to a node.
func (o Override) String() string {
	o.Until = o.Until.UTC()
	raw, err := json.Marshal(o)
	if err != nil { // only a year that is out of range can fail
		panic(fmt.Sprintf("marshalling override: %v", err))
	}
	return string(raw)
}

// Overridden describes an override in a verdict.
type Overridden struct {
	// State is the state that the override sets. Empty if the override ends by this
	// decision.
	State string
	// Until is the time at which the override ends. Because is the user's reason. Both are
	// empty if the gate keeps its state, or would close but is not accepted: the override
	// then ends only when the gate acts again.
	Until   time.Time
	Because string
	// Own is the gate's own state on the node, without the override. OwnReason is its
	// reason.
	Own       string
	OwnReason v1alpha1.Reason
	// HeldBy is another gate that keeps the taint on the node although the override
	// opens this gate. Empty if there is none.
	HeldBy string
}

// isKept reports whether the override stays in effect until the gate acts again.
func (o *Overridden) isKept() bool { return o.State != "" && o.Until.IsZero() }

// masking is the part of a slot that concerns overrides.
type masking struct {
	// override is the override of the gate; nil if there is none.
	override *Override
	// mask is the state that the override sets. Empty if it is not applied.
	mask string
	// was and wasSince are the override that the record notes, and its start.
	was      string
	wasSince time.Time
	// nonMember is the record of a node that is not a member and has a record only because
	// of an override.
	nonMember *Record
}

// isOverriddenOpen reports whether an override removed the taint or will remove it. In
// that case no other writer has removed the taint, and the gate's deadline does not
// run.
func (m *masking) isOverriddenOpen() bool {
	return m.mask == v1alpha1.StateOpen || m.was == v1alpha1.StateOpen
}

// Effective returns the gate's state on the node, including the override.
func (r *Record) Effective() string { return cmp.Or(r.Override, r.State) }

// tainted reports whether the record accounts for a taint.
func (r *Record) tainted() bool { return r.Effective() == v1alpha1.StateClosed }

// TaintedSince returns the time since which the gate has been in that state. If it is
// closed, that is the time since which the record accounts for a taint.
func (r *Record) TaintedSince(n *Node) time.Time {
	if r.Override != "" {
		return cmp.Or(r.OverrideSince, n.Created)
	}
	return r.closedSince(n)
}

// IgnoredNoGate is why an override has no effect if the decision includes no gate that it applies to.
const IgnoredNoGate = "no gate of this name selects the node"

// readOverrides reads the overrides on the node. It withdraws those that have ended. It
// also withdraws those that end too late, so that they do not take effect at a later
// time when they have been forgotten.
func (d *decider) readOverrides(gates []Gate) {
	for name, raw := range d.Node.Overrides {
		o, err := ParseOverride(raw)
		i, found := d.slots.find(name)
		found = found && d.slots[i].selected
		switch {
		case !found && d.Part:
		case err != nil:
			put(&d.ignored, name, err.Error())
		case o.UID != d.Node.UID:
			put(&d.ignored, name, fmt.Sprintf("its uid differs from the UID of this Node, %s", d.Node.UID))
		case !d.now.Before(o.Until):
			put(&d.withdrawn, name, "")
		case o.Until.Sub(d.now) > OverrideMax+clockSkew:
			put(&d.withdrawn, name, fmt.Sprintf("it ends at %s, which is more than %d days ahead", o.Until.UTC().Format(time.RFC3339), OverrideMax/(24*time.Hour)))
		case !found:
			d.recheckAt(o.Until)
			if !isInDryRun(gates, name) {
				put(&d.ignored, name, IgnoredNoGate)
			}
		default:
			d.recheckAt(o.Until)
			d.slots[i].override = &o
		}
	}
}

// isInDryRun reports whether a gate of this name is in dry run. Its override is applied
// in the dry run.
func isInDryRun(gates []Gate, name string) bool {
	return slices.ContainsFunc(gates, func(g Gate) bool { return g.Name == name && g.Mode == v1alpha1.ModeDryRun })
}

// put sets a key of a map, which is created if it is nil.
func put[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[key] = value
}

// ignore ignores the slot's override, if it has one.
func (d *decider) ignore(s *slot, why string) {
	if s.override != nil {
		s.override = nil
		put(&d.ignored, s.name, why)
	}
}

// takeOverride determines the override to be applied, before the gate is decided.
// Opening is always possible. A node that has a record only because of an override is
// not a member.
func (d *decider) takeOverride(s *slot) {
	if s.before != nil && s.before.isNonMember() {
		s.nonMember, s.before = s.before, nil
	}
	if o := s.override; o != nil && o.State == v1alpha1.StateClosed {
		switch {
		case s.gate.detaches():
			d.ignore(s, "an override cannot put a node out of service; the gate closes only while the node is unreachable")
		case !s.gate.Accepted && s.was != v1alpha1.StateClosed:
			d.ignore(s, "the gate is not accepted, so it cannot be closed")
		}
	}
	if s.override != nil {
		s.mask = s.override.State
	}
}

// applyOverride applies the override to the gate's decided state.
func (d *decider) applyOverride(s *slot) {
	if !s.selected || s.keep || !d.acts(s.gate) || s.mask == "" && s.was == "" {
		return
	}
	v := s.verdict
	if s.mask == "" && s.was == v1alpha1.StateOpen && v.After == v1alpha1.StateClosed && !s.gate.Accepted {
		s.mask = v1alpha1.StateOpen // the gate's taint cannot be added, so the override stays in effect
	}
	o := &Overridden{State: s.mask, Own: v.After, OwnReason: v.Reason}
	if s.after == nil && s.mask == v1alpha1.StateClosed {
		s.after = d.newNonMemberRecord(s)
	}
	if s.after != nil {
		d.maskRecord(s)
	}
	d.setOverriddenOutcome(s)
	if v.Overridden = o; s.override != nil {
		o.Until, o.Because = s.override.Until, s.override.Reason
	}
	if s.mask == v1alpha1.StateClosed {
		v.Blocked, v.BlockedUntil = v1alpha1.ReadingOverridden, o.Until
	}
}

// keepOverride sets the verdict of a gate that keeps its state to the override that its
// record notes, if there is one.
func (s *slot) keepOverride() {
	r := s.before
	if r.Override == "" {
		return
	}
	o := &Overridden{State: r.Override, Own: r.State, OwnReason: r.Reason}
	if r.isNonMember() {
		if o.OwnReason = ""; s.gate == nil || !s.gate.CloseWhen { // every node that a closeWhen gate selects is a member
			o.Own = ""
		}
	}
	s.verdict.Overridden, s.verdict.Reason = o, v1alpha1.ReasonOverridden
}

// setOverriddenOutcome sets the verdict to the state of the gate on the node, including
// the override.
func (d *decider) setOverriddenOutcome(s *slot) {
	v := s.verdict
	if s.was != "" {
		v.Before = s.was
	}
	if s.after != nil {
		v.After, v.Since = s.after.Effective(), s.after.TaintedSince(&d.Node)
	}
	v.Overdue = v.Overdue && v.After == v1alpha1.StateClosed
	v.Closure = nil // pods that started while the gate was overridden open did not bypass it
	if v.Opened() {
		v.ClosedSince = s.wasSince
		if s.was == "" && s.before != nil {
			v.ClosedSince = s.before.closedSince(&d.Node)
		}
	}
	switch {
	case s.after != nil && s.after.Override != "":
		v.Reason = v1alpha1.ReasonOverridden
	case s.was != "" && (v.Opened() || v.Closed()):
		v.Reason = v1alpha1.ReasonOverrideEnded
	}
}

// isNonMember reports whether the node has the record only because of an override.
func (r *Record) isNonMember() bool {
	return r.Reason == v1alpha1.ReasonOverridden && r.State == v1alpha1.StateOpen
}

// newNonMemberRecord returns a record for a node that is not a member and does not become one by
// being closed.
func (d *decider) newNonMemberRecord(s *slot) *Record {
	if s.nonMember != nil {
		r := *s.nonMember
		r.Source = s.gate.Source
		return &r
	}
	return &Record{State: v1alpha1.StateOpen, Since: d.since(), Reason: v1alpha1.ReasonOverridden, Source: s.gate.Source}
}

// maskRecord notes the override in the new record and defends it against other writers.
func (d *decider) maskRecord(s *slot) {
	r := s.after
	if r.Override != "" {
		r.Override, r.OverrideSince = "", time.Time{}
	}
	if s.mask != r.State {
		r.Override = s.mask
	}
	switch r.Override {
	case "":
		d.unmaskRecord(s)
		return
	case s.was:
		r.OverrideSince = s.wasSince
	default:
		r.OverrideSince = d.since()
		r.Fought, r.FoughtAt = 0, time.Time{} // the other writer has the state that it wants
	}
	if r.tainted() {
		r.Reclosed = !s.isNew // the gate's own state may have opened and closed in between
	}
	if !s.gate.Accepted {
		return
	}
	reverted := d.carriesOwn(s.gate)
	if r.Override == v1alpha1.StateClosed {
		t := s.gate.taint(r.Reclosed)
		r.Taint = TaintText(t)
		reverted = s.had == t && (reverted || d.reverted(t))
	}
	d.contend(s, reverted)
}

// unmaskRecord restarts the closed period of a gate that was overridden open until now.
// Pods that started in the meantime did not bypass the gate, and the time does not
// count towards its deadline.
func (d *decider) unmaskRecord(s *slot) {
	r := s.after
	if r.State == v1alpha1.StateOpen {
		r.Reclosed, r.Taint = false, TaintText(s.gate.Taint)
		return
	}
	if s.was != v1alpha1.StateOpen {
		return
	}
	r.Since, r.OverrideSince = d.since(), s.wasSince
	r.Reclosed, r.Taint = true, TaintText(s.gate.taint(true)) // the node was in use
	if r.stopClock(); s.gate.Deadline.isSet() && d.Node.Silent() {
		r.SilentSince = r.Since
	}
	if r.Reason == v1alpha1.ReasonBirth || r.Reason == v1alpha1.ReasonAdopted {
		r.Reason = v1alpha1.ReasonOverrideEnded // it closes now, not at birth or at an unknown time
	}
}

// setHeldBy sets HeldBy for gates that are overridden open while another gate keeps
// their common taint on the node.
func (d *decider) setHeldBy() {
	for i := range d.slots {
		s := &d.slots[i]
		if s.mask != v1alpha1.StateOpen || s.verdict.Overridden == nil {
			continue
		}
		for _, t := range s.gate.Taints() {
			if other := d.holder(t.Key, t.Effect); other != nil {
				s.verdict.Overridden.HeldBy = other.name
			}
		}
	}
}
