// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"strings"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// ThrottledMessage describes the nodes that wait for a gate's budget, and why they must be closed.
func (s *Summary) ThrottledMessage(ng *v1alpha1.NodeGate) string {
	message := fmt.Sprintf("closing waits for budget on %s: budget.maxReclosed (%s) does not allow more closed nodes in their zone",
		s.Throttled, ng.Spec.Budget.MaxReclosed)
	if s.Lost != "" {
		message += "; " + s.Lost
	}
	return message
}

// FailingMessage describes the nodes on which writes have failed for a while, or returns "". If these are
// not known, but failing was reported before, it describes those on which the last write failed: a new
// leader does not know for how long writes have failed.
func (s *Summary) FailingMessage(reported bool) string {
	switch {
	case s.FailingLong.Count > 0:
		return fmt.Sprintf("writing has failed for at least a minute on %s: %s", s.FailingLong, s.Failure)
	case reported && s.Failing.Count > 0:
		return fmt.Sprintf("writing still fails on %s: %s", s.Failing, s.Failure)
	}
	return ""
}

// OverdueMessage describes the nodes whose deadline for a gate has passed, and what the first of
// them waits for.
func (s *Summary) OverdueMessage(ng *v1alpha1.NodeGate) string {
	var parts []string
	if s.Overdue.Count > 0 {
		parts = append(parts, fmt.Sprintf("past the deadline and kept closed: %s; %s", s.Overdue, s.OverdueFor))
	}
	if s.Lapsed.Count > 0 {
		parts = append(parts, gate.OpenedByDeadline(s.Lapsed.String()))
	}
	if s.Published.Count > 0 {
		parts = append(parts, fmt.Sprintf("with condition %s%s: %s", v1alpha1.DeadlineConditionPrefix, ng.Name, s.Published))
	}
	if s.Unpublished.Count > 0 {
		parts = append(parts, fmt.Sprintf("waiting for this condition, because budget.maxReclosed (%s) does not allow it on more nodes in their zone: %s",
			ng.Spec.Budget.MaxReclosed, s.Unpublished))
	}
	return strings.Join(parts, "; ")
}

// Remarks returns facts about a gate's nodes that are not problems but may be unintended. It
// starts with a separator unless it is empty, as do the following texts.
func (s *Summary) Remarks() string {
	if s.Counts.Selected == 0 {
		return "; nodeSelector selects no node at present"
	}
	if s.Counts.NonMembers > 0 {
		return fmt.Sprintf("; %d of the selected nodes are not members: see status.nonMembers", s.Counts.NonMembers)
	}
	return ""
}

// UndecidedText describes the nodes on which it is unknown whether a closeWhen gate should
// close.
func (s *Summary) UndecidedText() string {
	if s.Undecided.Count == 0 {
		return ""
	}
	return fmt.Sprintf("; unknown, and therefore not closed, on %s: %s", s.Undecided, s.UndecidedWhy)
}

// OverridesText describes the nodes with an override, and with one that is ignored.
func (s *Summary) OverridesText() string {
	text := ""
	if s.Overridden.Count > 0 {
		text += fmt.Sprintf("; manually overridden on %s", s.Overridden)
	}
	if s.Ignored.Count > 0 {
		text += fmt.Sprintf("; the override is ignored on %s: %s", s.Ignored, s.IgnoredWhy)
	}
	return text
}
