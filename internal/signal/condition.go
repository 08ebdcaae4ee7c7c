// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// matcher matches a text exactly or by an anchored pattern.
type matcher struct {
	text    string
	pattern *regexp.Regexp // nil for an exact match
}

func newMatcher(exact, pattern string) (matcher, error) {
	if pattern == "" {
		return matcher{text: exact}, nil
	}
	if _, err := regexp.Compile(pattern); err != nil { // "a)|(b" is invalid, but valid within parentheses
		return matcher{}, fmt.Errorf("compiling pattern %q: %w", pattern, err)
	}
	re, err := regexp.Compile("^(?:" + pattern + ")$")
	if err != nil {
		return matcher{}, fmt.Errorf("compiling pattern %q: %w", pattern, err)
	}
	return matcher{text: pattern, pattern: re}, nil
}

func (m matcher) matches(text string) bool {
	if m.pattern != nil {
		return m.pattern.MatchString(text)
	}
	return text == m.text
}

// condition holds when a condition of the node matches.
type condition struct {
	levelSignal
	conditionType, status matcher
	whenMissing           v1alpha1.WhenMissing
	// holdFor is how long the condition must have matched.
	holdFor time.Duration
	// maxAge is the maximum age of its heartbeat; zero means any age.
	maxAge time.Duration
	// subject is the subject of readings while the condition is missing.
	subject string
}

func newCondition(spec *v1alpha1.ConditionSignal) (gate.Signal, error) {
	s := condition{
		whenMissing: spec.WhenMissing,
		holdFor:     time.Duration(spec.ForSeconds) * time.Second,
		maxAge:      time.Duration(ptr.Deref(spec.MaxHeartbeatAgeSeconds, 0)) * time.Second,
	}
	var err error
	if s.conditionType, err = newMatcher(spec.Type, spec.TypePattern); err != nil {
		return nil, err
	}
	if s.status, err = newMatcher(spec.Status, spec.StatusPattern); err != nil {
		return nil, err
	}
	s.subject = "condition " + s.conditionType.text
	return s, nil
}

// ProvesBoot implements gate.Signal. A missing condition has no heartbeat.
func (s condition) ProvesBoot() bool { return s.maxAge > 0 && s.whenMissing != v1alpha1.MissingHolds }

// Needs implements gate.Signal.
func (s condition) Needs(*gate.DaemonSets) gate.Needs {
	n := gate.Needs{Heartbeats: s.maxAge > 0, AllConditions: s.conditionType.pattern != nil}
	if !n.AllConditions {
		n.Conditions = []string{s.conditionType.text}
	}
	return n
}

// Read implements gate.Signal. If a pattern matches several conditions, one of them is
// sufficient. Read returns the reading of the one that has matched the longest.
func (s condition) Read(in gate.Input) gate.Reading {
	r := gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingMissing, Subject: s.subject}
	if s.whenMissing == v1alpha1.MissingHolds {
		r.State = gate.Holds
	}
	found := false
	for _, c := range in.Node.Conditions {
		if !s.conditionType.matches(c.Type) {
			continue
		}
		one := s.readOne(c, in)
		switch {
		case !found:
			r, found = one, true
		case r.State == gate.Holds || one.State == gate.Holds:
			r = longest(r, one)
		case r.State == gate.Unknown: // Unknown takes precedence over NotYet
			r.Recheck = gate.Earliest(r.Recheck, one.Recheck)
		default:
			one.Recheck = gate.Earliest(r.Recheck, one.Recheck)
			if one.State == gate.NotYet { // none has matched only since the last of them stopped
				one.Since = neitherSince(r.Since, one.Since)
			}
			r = one
		}
	}
	r.Alternative = s.conditionType.pattern != nil
	return r
}

// readOne reads a condition of the type. A condition whose status is Unknown makes the
// signal unknown, unless the signal asks for Unknown. So does a condition without a
// recent heartbeat, whatever its status.
func (s condition) readOne(c gate.Condition, in gate.Input) gate.Reading {
	r := gate.Reading{State: gate.NotYet, Subject: "condition " + c.Type + "=" + string(c.Status), Since: c.Transition}
	fresh, changes := s.fresh(c, in)
	r.Recheck = changes
	matched := c.Transition.Add(s.holdFor)
	switch {
	case !fresh:
		r.State, r.Reason = gate.Unknown, v1alpha1.ReadingStaleHeartbeat
	case !s.status.matches(string(c.Status)):
		r.Reason = v1alpha1.ReadingDiffers
		if c.Status == corev1.ConditionUnknown {
			r.State = gate.Unknown
		}
	case s.holdFor > 0 && c.Transition.IsZero():
		r.State, r.Reason = gate.Unknown, v1alpha1.ReadingNoTransitionTime
	case s.holdFor > 0 && in.Now.Before(matched): // without holdFor, a clock that is ahead causes no wait
		r.Reason, r.Since = v1alpha1.ReadingTooBriefly, time.Time{}
		r.Recheck = gate.Earliest(r.Recheck, matched)
	default:
		r.State, r.Reason, r.Since = gate.Holds, v1alpha1.ReadingMatches, matched
	}
	return r
}

// fresh reports whether the condition's heartbeat is recent and, if required, from the
// current boot. It also returns when the passing of time will change that. A heartbeat
// that is too far in the future is not fresh: the node's clock is wrong, and the
// condition would appear fresh for that long.
func (s condition) fresh(c gate.Condition, in gate.Input) (fresh bool, changes time.Time) {
	const tolerance = gate.HeartbeatSkew
	age := in.Now.Sub(c.Heartbeat)
	switch {
	case s.maxAge == 0:
		return true, time.Time{}
	case c.Heartbeat.IsZero(), age > s.maxAge+tolerance, !in.Trust.BelievesHeartbeat(c.Heartbeat):
		return false, time.Time{} // until the next heartbeat
	case age < -(s.maxAge + tolerance):
		return false, c.Heartbeat.Add(-(s.maxAge + tolerance))
	}
	return true, c.Heartbeat.Add(s.maxAge + tolerance + 1)
}
