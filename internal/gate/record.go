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

// Record is a gate's memory on a node: the annotation gate.nodegate.dev/<gate>.
// It is written in the same patch as the taint, survives crashes, and says
// enough to clean up after a gate that was deleted while nobody watched.
type Record struct {
	// State is StateClosed or StateOpen.
	State string `json:"state"`
	// Since is when the gate came into that state. Records written at birth by
	// the API server omit it: a policy has no clock; it is the Node's creation.
	Since time.Time `json:"since,omitzero"`
	// Reason says why.
	Reason v1alpha1.Reason `json:"reason,omitempty"`
	// Boot is the boot ID that the record speaks of.
	Boot string `json:"boot,omitempty"`
	// Taint is the taint that the closed gate put there.
	Taint string `json:"taint,omitempty"`
	// Reclosed is true of a closed gate if the node is not new to it: the taint is
	// the gate's RecloseTaint, whatever that is by now.
	Reclosed bool `json:"reclosed,omitempty"`
	// Source is where the gate was declared.
	Source string `json:"source,omitempty"`
	// Digest names the pods whose readiness was known from before.
	Digest Digest `json:"digest,omitempty"`
	// Overdue is true of a closed gate whose deadline has passed.
	Overdue bool `json:"overdue,omitempty"`
	// SilentSince is since when the node of a closed gate with a deadline has been
	// silent, and SilentSeconds for how long it was before.
	SilentSince   time.Time `json:"silentSince,omitzero"`
	SilentSeconds int64     `json:"silentSeconds,omitempty"`
	// Fought counts how often in a row another writer undid the taint, and
	// FoughtAt is when it was last put right.
	Fought   int       `json:"fought,omitempty"`
	FoughtAt time.Time `json:"foughtAt,omitzero"`
	// Override is the other state, StateOpen or StateClosed, that a person has the
	// gate be in for a time, and OverrideSince is since when. The taint is on the
	// node by it, and not by State. OverrideSince outlasts Override in the record of
	// a gate that is closed again: a person had it open since it closed or, if it
	// closed for a boot, in that boot.
	Override      string    `json:"override,omitempty"`
	OverrideSince time.Time `json:"overrideSince,omitzero"`
}

// ParseRecord reads a record. The error says what is wrong with it.
func ParseRecord(raw string) (r Record, err error) {
	if err := r.parse(raw); err != nil {
		return Record{}, err
	}
	return r, nil
}

// parse reads a record into an empty one, which is worth nothing after an error.
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

// check refuses what nodegate never writes, so that a record that somebody
// else has edited can mislead neither about time nor about whose a taint is.
func (r *Record) check() error {
	if r.State != v1alpha1.StateClosed && r.State != v1alpha1.StateOpen {
		return fmt.Errorf("state %q is neither %s nor %s", r.State, v1alpha1.StateClosed, v1alpha1.StateOpen)
	}
	for _, t := range []time.Time{r.Since, r.SilentSince, r.FoughtAt, r.OverrideSince} {
		if t.IsZero() {
			continue
		}
		if year := t.UTC().Year(); year < 1970 || year > 9000 {
			return fmt.Errorf("%s is no time that a clock shows", t)
		}
	}
	const century = 100 * 366 * 24 * 60 * 60
	if r.SilentSeconds < 0 || r.SilentSeconds > century {
		return fmt.Errorf("%d seconds of silence are not possible", r.SilentSeconds)
	}
	if r.State == v1alpha1.StateOpen && r.Override == "" {
		return nil
	}
	return r.checkTaint()
}

// checkTaint checks what a record says of a taint, and of an override of it.
func (r *Record) checkTaint() error {
	switch r.Override {
	case "", v1alpha1.StateOpen, v1alpha1.StateClosed:
	default:
		return fmt.Errorf("override %q is neither %s nor %s", r.Override, v1alpha1.StateClosed, v1alpha1.StateOpen)
	}
	if r.Override == r.State {
		return fmt.Errorf("override %s is what the gate is", r.Override)
	}
	t, ok := parseTaint(r.Taint)
	switch {
	case !ok:
		return fmt.Errorf("taint %q is not of the form key=value:Effect", r.Taint)
	case strings.HasPrefix(t.Key, v1alpha1.CoreTaintPrefix) && t.Key != v1alpha1.TaintOutOfService:
		return fmt.Errorf("taint %q is Kubernetes' own", r.Taint)
	}
	return nil
}

// String returns the record as it stands on a node.
func (r Record) String() string {
	// Milliseconds are as exact as a clock that others must understand can be.
	r.Since = r.Since.UTC().Truncate(time.Millisecond)
	r.SilentSince = r.SilentSince.UTC().Truncate(time.Millisecond)
	r.FoughtAt = r.FoughtAt.UTC().Truncate(time.Millisecond)
	r.OverrideSince = r.OverrideSince.UTC().Truncate(time.Millisecond)
	raw, err := json.Marshal(r)
	if err != nil { // strings, numbers and times always marshal
		panic(fmt.Sprintf("marshalling record: %v", err))
	}
	return string(raw)
}

// Key is the key of the taint that the record tells of, if it tells of one.
func (r *Record) Key() string {
	t, _ := parseTaint(r.Taint)
	return t.Key
}

// Put is the taint that the record tells of; zero where it tells of none.
func (r *Record) Put() v1alpha1.Taint {
	t, _ := parseTaint(r.Taint)
	return t
}

// closedSince is when the gate was closed on the node.
func (r *Record) closedSince(n *Node) time.Time {
	if r.Since.IsZero() {
		return n.Created
	}
	return r.Since
}

// TaintText is a taint's text form in records: key=value:Effect, or key:Effect
// where there is no value.
func TaintText(t v1alpha1.Taint) string {
	if t.Value == "" {
		return t.Key + ":" + string(t.Effect)
	}
	return t.Key + "=" + t.Value + ":" + string(t.Effect)
}

// parseTaint reads the text form of a taint. It is false for anything else.
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
