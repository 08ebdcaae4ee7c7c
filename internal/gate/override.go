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
// A person may have a gate be open or closed on one node for a time, by an
// annotation of the Node. That is a mask: the gate is decided about as ever, and
// its record goes on saying what it would be; the override says only whether the
// taint is on the node meanwhile. Where the two differ the record notes it,
// because whether it accounts for the taint depends on it. When the time is over
// the node is what the gate says. See docs/decisions/0020.
//
// An override names its Node by UID. Nobody knows that before the Node exists, so
// that no kubelet can register with an override of its own making.

// OverrideMax is how far ahead an override may end. A policy has no clock, so it
// is the core that refuses others.
const OverrideMax = 7 * 24 * time.Hour

// overrideReasonMax bounds the reason that a person gives, in characters.
const overrideReasonMax = 256

// Override is what the annotation override.nodegate.dev/<gate> says.
type Override struct {
	// State is what the gate is to be on the node: StateOpen or StateClosed.
	State string `json:"state"`
	// Until is when that ends.
	Until time.Time `json:"until"`
	// Reason is why, in the words of whoever wrote it.
	Reason string `json:"reason"`
	// UID is that of the Node.
	UID types.UID `json:"uid"`
}

// ParseOverride reads an override. The error says what is wrong with it.
func ParseOverride(raw string) (Override, error) {
	var o Override
	in := json.NewDecoder(bytes.NewReader([]byte(raw)))
	in.DisallowUnknownFields()
	if err := in.Decode(&o); err != nil {
		return Override{}, fmt.Errorf("reading the override: %w", err)
	}
	switch n := utf8.RuneCountInString(o.Reason); {
	case in.More():
		return Override{}, errors.New("reading the override: something comes after it")
	case o.State != v1alpha1.StateOpen && o.State != v1alpha1.StateClosed:
		return Override{}, fmt.Errorf("state %q is neither %s nor %s", o.State, v1alpha1.StateOpen, v1alpha1.StateClosed)
	case o.Until.IsZero():
		return Override{}, errors.New("it does not say until when")
	case n == 0 || n > overrideReasonMax:
		return Override{}, fmt.Errorf("the reason has %d characters; give one of 1 to %d", n, overrideReasonMax)
	}
	return o, nil
}

// String returns the override as it stands on a node.
func (o Override) String() string {
	o.Until = o.Until.UTC()
	raw, err := json.Marshal(o)
	if err != nil { // texts and times always marshal, but for years that no clock shows
		panic(fmt.Sprintf("marshalling override: %v", err))
	}
	return string(raw)
}

// Overridden is what a verdict tells of an override.
type Overridden struct {
	// State is what a person has the gate be. Empty when that just ends.
	State string
	// Until is when it ends, and Because the person's reason.
	Until   time.Time
	Because string
	// Own and OwnReason are what the gate is on the node by itself, and why.
	Own       string
	OwnReason v1alpha1.Reason
	// HeldBy names a gate that keeps the taint on the node although this one is
	// open by override. Empty where none does.
	HeldBy string
}

// masking is a slot's part in overrides.
type masking struct {
	// override is the person's word for the gate; nil for none.
	override *Override
	// mask is its state, if it is heeded.
	mask string
	// was and wasSince are what the record notes of an override.
	was      string
	wasSince time.Time
	// guest is the record of a node that is no member, but for an override.
	guest *Record
}

// isOpenByHand tells whether the taint was off the node by override, or is to be:
// nobody else has taken it off, and no time counts in which it was on.
func (m *masking) isOpenByHand() bool {
	return m.mask == v1alpha1.StateOpen || m.was == v1alpha1.StateOpen
}

// effective is what the gate is on the node, all told.
func (r *Record) effective() string { return cmp.Or(r.Override, r.State) }

// tainted tells whether the record accounts for a taint.
func (r *Record) tainted() bool { return r.effective() == v1alpha1.StateClosed }

// taintedSince is since when it does.
func (r *Record) taintedSince(n *Node) time.Time {
	if r.Override != "" {
		return r.OverrideSince
	}
	return r.closedSince(n)
}

// readOverrides reads what people want. Those that have ended are withdrawn, and
// so are those that end too late, lest they come into force one day when nobody
// thinks of them any more.
func (d *decider) readOverrides(gates []Gate) {
	for name, raw := range d.Node.Overrides {
		o, err := ParseOverride(raw)
		i := slices.IndexFunc(d.slots, func(s slot) bool { return s.name == name && s.selected })
		switch {
		case i < 0 && d.Part:
		case err != nil:
			note(&d.ignored, name, err.Error())
		case o.UID != d.Node.UID:
			note(&d.ignored, name, fmt.Sprintf("its uid is not that of this Node, %s", d.Node.UID))
		case !d.now.Before(o.Until):
			note(&d.withdrawn, name, "")
		case o.Until.Sub(d.now) > OverrideMax+clockSkew:
			note(&d.withdrawn, name, fmt.Sprintf("it ends at %s, which is more than %d days ahead", o.Until.UTC().Format(time.RFC3339), OverrideMax/(24*time.Hour)))
		case i < 0:
			d.recheckAt(o.Until)
			if !tried(gates, name) {
				note(&d.ignored, name, "no gate of this name selects the node")
			}
		default:
			d.recheckAt(o.Until)
			d.slots[i].override = &o
		}
	}
}

// tried tells whether a gate of this name is in dry run, where it is as if the
// override were heeded.
func tried(gates []Gate, name string) bool {
	return slices.ContainsFunc(gates, func(g Gate) bool { return g.Name == name && g.Mode == v1alpha1.ModeDryRun })
}

func note(notes *map[string]string, name, text string) {
	if *notes == nil {
		*notes = make(map[string]string)
	}
	(*notes)[name] = text
}

// ignore does not heed the slot's override, if it has one.
func (d *decider) ignore(s *slot, why string) {
	if s.override != nil {
		s.override = nil
		note(&d.ignored, s.name, why)
	}
}

// heed takes up what a person wants of the gate, before it is decided about.
// Opening always works. What is there for an override only is no member.
func (d *decider) heed(s *slot) {
	if s.before != nil && s.before.Reason == v1alpha1.ReasonOverridden && s.before.State == v1alpha1.StateOpen {
		s.guest, s.before = s.before, nil
	}
	if o := s.override; o != nil && o.State == v1alpha1.StateClosed {
		switch {
		case s.gate.detaches():
			d.ignore(s, "no override takes a node out of service: only its silence does")
		case !s.gate.Accepted && s.was != v1alpha1.StateClosed:
			d.ignore(s, "the gate is not accepted, and closes nothing")
		}
	}
	if s.override != nil {
		s.mask = s.override.State
	}
}

// putUnder puts what was decided about a gate under the override.
func (d *decider) putUnder(s *slot) {
	if !s.selected || s.keep || !d.acts(s.gate) || s.mask == "" && s.was == "" {
		return
	}
	v := s.verdict
	o := &Overridden{State: s.mask, Own: v.After, OwnReason: v.Reason}
	if s.after == nil && s.mask == v1alpha1.StateClosed {
		s.after = d.newGuest(s)
	}
	if s.after != nil {
		d.cover(s)
	}
	d.tellOverride(s)
	if v.Overridden = o; s.override != nil {
		o.Until, o.Because = s.override.Until, s.override.Reason
	}
	if s.mask == v1alpha1.StateClosed {
		v.Blocked, v.BlockedUntil = v1alpha1.ReadingOverridden, o.Until
	}
}

// tellOverride has the verdict say what the gate is on the node, all told.
func (d *decider) tellOverride(s *slot) {
	v := s.verdict
	if s.was != "" {
		v.Before = s.was
	}
	if s.after != nil {
		v.After, v.Since = s.after.effective(), s.after.taintedSince(&d.Node)
	}
	v.Overdue = v.Overdue && v.After == v1alpha1.StateClosed
	v.Closure = nil // what started while a person had the gate open did nothing wrong
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

// newGuest returns a record for a node that is not a member, nor becomes one by
// being closed.
func (d *decider) newGuest(s *slot) *Record {
	if s.guest != nil {
		r := *s.guest
		r.Source = s.gate.Source
		return &r
	}
	return &Record{State: v1alpha1.StateOpen, Since: d.since(), Reason: v1alpha1.ReasonOverridden, Source: s.gate.Source}
}

// cover notes the override in the record that there is to be, and defends it.
func (d *decider) cover(s *slot) {
	r := s.after
	if r.Override != "" {
		r.Override, r.OverrideSince = "", time.Time{}
	}
	if s.mask != r.State {
		r.Override = s.mask
	}
	switch r.Override {
	case "":
		d.uncover(s)
		return
	case s.was:
		r.OverrideSince = s.wasSince
	default:
		r.OverrideSince = d.since()
		r.Fought, r.FoughtAt = 0, time.Time{}  // who fought for the opposite has what they want
		r.Reclosed = r.Reclosed || r.tainted() // the node was in use
	}
	if !s.gate.Accepted {
		return
	}
	undone := d.carriesOwn(s.gate)
	if r.Override == v1alpha1.StateClosed {
		t := s.gate.taint(r.Reclosed)
		r.Taint = TaintText(t)
		undone = s.had == t && (undone || d.undone(t))
	}
	d.fight(s, undone)
}

// uncover begins a gate's time of being closed anew where a person had it open
// until now. Nothing that happened meanwhile counts against a pod, nor the time
// against the node.
func (d *decider) uncover(s *slot) {
	r := s.after
	if r.State == v1alpha1.StateOpen {
		r.Reclosed, r.Taint = false, TaintText(s.gate.Taint)
		return
	}
	if s.was != v1alpha1.StateOpen {
		return
	}
	r.Since, r.OverrideSince = d.since(), s.wasSince
	if r.Reclosed = true; s.gate.Accepted { // the node was in use
		r.Taint = TaintText(s.gate.taint(true))
	}
	if r.stopClock(); s.gate.Deadline.isSet() && d.Node.Silent() {
		r.SilentSince = r.Since
	}
	if r.Reason == v1alpha1.ReasonBirth {
		r.Reason = v1alpha1.ReasonOverrideEnded // for it did not close then
	}
}

// sayWhoHolds names, where a person has a gate open, a gate that keeps their
// common taint on the node.
func (d *decider) sayWhoHolds() {
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
