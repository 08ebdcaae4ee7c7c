// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"strconv"
)

// Marks.
//
// A pod may be marked as ready by an annotation. No kubelet corrects an annotation: it
// survives containers, boots and the machine itself. Unlike a Ready condition, a mark
// therefore does not become evidence when containers start again or time passes, but
// only when it is written again. This is detected from the time of the write, which the
// API server records. The time and the pod's UID identify the mark. Times are compared
// only for equality, except where a record could not list the marks or the Node is
// newer than the pod. The times of the Node and of the mark come from the API server, but
// that of the record comes from the controller's clock. If that is behind, a mark from
// shortly before the record looks newer, so what this replica knows to be old comes first.
//
// The record of an open gate lists no marks: after a reboot that was not observed, the
// gate stays open on old ones.

// mark returns the incarnation of the pod's mark.
func (p *Pod) mark() Incarnation {
	return NewIncarnation(p.UID, []string{"marked", strconv.FormatInt(p.MarkedSince.Unix(), 10)})
}

// AppendKnown appends what identifies the pod's state from before a boot, if the start of that boot
// is observed now: its containers, if it is ready or has run, and its mark.
func (p *Pod) AppendKnown(to []Incarnation) []Incarnation {
	if p.Ready || p.Run != (Run{}) {
		to = append(to, p.Incarnation)
	}
	if !p.MarkedSince.IsZero() {
		to = append(to, p.mark())
	}
	return to
}

// BelievesMark reports whether a marked pod's mark is evidence of the node's current
// boot and the current Node. If it is not, the passing of time does not change that.
func (t Trust) BelievesMark(p *Pod) bool {
	switch {
	case t.digest.has(p.mark()), slices.Contains(t.known, p.mark()):
		return false
	case t.digest == digestAll, t.behind:
		return p.MarkedSince.After(t.since)
	case p.Created.Before(t.nodeCreated):
		return p.MarkedSince.After(t.nodeCreated)
	}
	return true
}
