// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// matcher matches one text: exactly, or by an anchored pattern.
type matcher struct {
	text    string
	pattern *regexp.Regexp // nil for an exact match
}

func newMatcher(exact, pattern string) (matcher, error) {
	if pattern == "" {
		return matcher{text: exact}, nil
	}
	if _, err := regexp.Compile(pattern); err != nil { // "a)|(b" would do within brackets
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
}

func newCondition(spec *v1alpha1.ConditionSignal) (gate.Signal, error) {
	s := condition{whenMissing: spec.WhenMissing}
	var err error
	if s.conditionType, err = newMatcher(spec.Type, spec.TypePattern); err != nil {
		return nil, err
	}
	if s.status, err = newMatcher(spec.Status, spec.StatusPattern); err != nil {
		return nil, err
	}
	return s, nil
}

// Read implements gate.Signal. With a pattern, one matching condition will do.
// A condition whose status is Unknown says nothing, unless Unknown is what is
// asked for.
func (s condition) Read(in gate.Input) gate.Reading {
	subject := "condition " + s.conditionType.text
	r := gate.Reading{State: gate.NotYet, Reason: v1alpha1.ReadingMissing, Subject: subject}
	if s.whenMissing == v1alpha1.MissingHolds {
		r.State = gate.Holds
	}
	for _, c := range in.Node.Conditions {
		if !s.conditionType.matches(c.Type) {
			continue
		}
		subject = fmt.Sprintf("condition %s=%s", c.Type, c.Status)
		if s.status.matches(string(c.Status)) {
			return gate.Reading{State: gate.Holds, Reason: v1alpha1.ReadingMatches, Subject: subject, Since: c.Transition}
		}
		state := gate.NotYet
		if c.Status == corev1.ConditionUnknown || r.Reason == v1alpha1.ReadingDiffers && r.State == gate.Unknown {
			state = gate.Unknown
		}
		r = gate.Reading{State: state, Reason: v1alpha1.ReadingDiffers, Subject: subject, Since: c.Transition}
	}
	return r
}
