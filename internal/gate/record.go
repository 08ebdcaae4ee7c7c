// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Record is a gate's state on a node: the annotation gate.nodegate.dev/<gate>. It is
// written in the same patch as the taint, survives crashes, and contains everything
// needed to clean up after a gate that was deleted while the controller was not
// running.
type Record struct {
	// State is StateClosed or StateOpen.
	State string `json:"state"`
	// Since is the time at which the gate entered that state. The API server's birth
	// policy has no clock and omits it; it is then the Node's creation time.
	Since time.Time `json:"since,omitzero"`
	// Reason is the reason for the state.
	Reason v1alpha1.Reason `json:"reason,omitempty"`
	// Boot is the boot ID that the record refers to.
	Boot string `json:"boot,omitempty"`
	// BootSeen is when the node was first observed in its boot, in the record of a gate whose
	// signals read heartbeats: those from before that time are no evidence. A closed record
	// that says that the gate closed for a boot does not need it.
	BootSeen time.Time `json:"bootSeen,omitzero"`
	// Taint is the taint that the closed gate added.
	Taint string `json:"taint,omitempty"`
	// Reclosed is true for a closed gate if the node is not new to it. The taint is
	// then the gate's RecloseTaint, even if that has been edited since.
	Reclosed bool `json:"reclosed,omitempty"`
	// Source is where the gate was declared.
	Source string `json:"source,omitempty"`
	// Digest lists the pods whose readiness was known before the gate closed.
	Digest Digest `json:"digest,omitempty"`
	// Completed contains the runs that succeeded in the boot (see Remembering).
	Completed Completions `json:"completed,omitempty"`
	// Overdue is true for a closed gate whose deadline has passed.
	Overdue bool `json:"overdue,omitempty"`
	// SilentSince is the time since which the node has been unreachable, for a closed
	// gate with a deadline. SilentSeconds is how long it was unreachable before, in
	// total.
	SilentSince   time.Time `json:"silentSince,omitzero"`
	SilentSeconds int64     `json:"silentSeconds,omitempty"`
	// Fought is the number of consecutive times that another writer reverted the taint.
	// FoughtAt is the time at which the taint was last restored.
	Fought   int       `json:"fought,omitempty"`
	FoughtAt time.Time `json:"foughtAt,omitzero"`
	// Override is the opposite state, StateOpen or StateClosed, that a user forces on
	// the gate for a limited time, and OverrideSince is its start. Override, and not
	// State, then determines whether the taint is on the node. OverrideSince remains in
	// the record of a gate that is closed again. It means that the gate was overridden
	// open since it closed or, if it closed for a boot, in that boot.
	Override      string    `json:"override,omitempty"`
	OverrideSince time.Time `json:"overrideSince,omitzero"`
}

// ParseRecord parses a record.
func ParseRecord(raw string) (r Record, err error) {
	if err := r.parse(raw); err != nil {
		return Record{}, err
	}
	return r, nil
}

// parse parses a record into an empty one, whose content is undefined after an error.
func (r *Record) parse(raw string) error {
	if !r.scan(raw) {
		*r = Record{}
		if err := json.Unmarshal([]byte(raw), r); err != nil {
			return fmt.Errorf("parsing record: %w", err)
		}
	}
	if err := r.check(); err != nil {
		return fmt.Errorf("parsing record: %w", err)
	}
	return nil
}

// check rejects records that nodegate never writes, so that a record edited by another
// writer cannot falsify times, the ownership of taints, or lines in the output of commands.
func (r *Record) check() error {
	if r.State != v1alpha1.StateClosed && r.State != v1alpha1.StateOpen {
		return fmt.Errorf("state %q is neither %s nor %s", r.State, v1alpha1.StateClosed, v1alpha1.StateOpen)
	}
	for _, t := range []time.Time{r.Since, r.BootSeen, r.SilentSince, r.FoughtAt, r.OverrideSince} {
		if t.IsZero() {
			continue
		}
		if year := t.UTC().Year(); year < 1970 || year > 9000 {
			return fmt.Errorf("time %s is out of range", t)
		}
	}
	const century = 100 * 366 * 24 * 60 * 60
	if r.SilentSeconds < 0 || r.SilentSeconds > century {
		return fmt.Errorf("silentSeconds %d is out of range", r.SilentSeconds)
	}
	for _, text := range []string{string(r.Reason), r.Taint, r.Source} {
		if Printable(text) != text {
			return fmt.Errorf("%q contains characters that cannot be printed", text)
		}
	}
	if r.State == v1alpha1.StateOpen && r.Override == "" {
		return nil
	}
	return r.checkTaint()
}

// checkTaint checks the taint and the override of a record.
func (r *Record) checkTaint() error {
	switch r.Override {
	case "", v1alpha1.StateOpen, v1alpha1.StateClosed:
	default:
		return fmt.Errorf("override %q is neither %s nor %s", r.Override, v1alpha1.StateClosed, v1alpha1.StateOpen)
	}
	if r.Override == r.State {
		return fmt.Errorf("override %s is the same as the state", r.Override)
	}
	t, ok := parseTaint(r.Taint)
	switch {
	case !ok:
		return fmt.Errorf("taint %q is not of the form key=value:Effect", r.Taint)
	case strings.HasPrefix(t.Key, v1alpha1.CoreTaintPrefix) && t.Key != v1alpha1.TaintOutOfService:
		return fmt.Errorf("taint %q is reserved for Kubernetes", r.Taint)
	}
	return nil
}

// String returns the record as it is written to a node.
func (r Record) String() string {
	// Milliseconds are precise enough for times that are compared across clocks.
	r.Since = r.Since.UTC().Truncate(time.Millisecond)
	r.BootSeen = r.BootSeen.UTC().Truncate(time.Millisecond)
	r.SilentSince = r.SilentSince.UTC().Truncate(time.Millisecond)
	r.FoughtAt = r.FoughtAt.UTC().Truncate(time.Millisecond)
	r.OverrideSince = r.OverrideSince.UTC().Truncate(time.Millisecond)
	raw, err := json.Marshal(r)
	if err != nil { // strings, numbers and times always marshal
		panic(fmt.Sprintf("marshalling record: %v", err))
	}
	return string(raw)
}

// RecordedTaint returns the recorded taint, or a zero taint if there is none.
func (r *Record) RecordedTaint() v1alpha1.Taint {
	t, _ := parseTaint(r.Taint)
	return t
}

// closedSince returns the time at which the gate closed on the node.
func (r *Record) closedSince(n *Node) time.Time {
	if r.Since.IsZero() {
		return n.Created
	}
	return r.Since
}

// TaintText returns a taint in the form used in records: key=value:Effect, or
// key:Effect if there is no value.
func TaintText(t v1alpha1.Taint) string {
	if t.Value == "" {
		return t.Key + ":" + string(t.Effect)
	}
	return t.Key + "=" + t.Value + ":" + string(t.Effect)
}

// parseTaint parses a taint in that form. It returns false if the text has another
// form.
func parseTaint(text string) (v1alpha1.Taint, bool) {
	body, effect, ok := strings.Cut(text, ":")
	key, value, _ := strings.Cut(body, "=")
	if !ok || key == "" {
		return v1alpha1.Taint{}, false
	}
	switch e := corev1.TaintEffect(effect); e {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		return v1alpha1.Taint{Key: key, Value: value, Effect: e}, true
	}
	return v1alpha1.Taint{}, false
}
