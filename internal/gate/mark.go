// SPDX-License-Identifier: Apache-2.0

package gate

import "strconv"

// Marks.
//
// A pod may be marked as ready by an annotation. No kubelet corrects an
// annotation: it outlives containers, boots, and the machine. So unlike a Ready
// condition it comes to be believed neither by new containers in its pod nor by
// the passing of time, but only by having been written since. That tells from
// the time of the write, which the API server keeps and which, together with the
// pod's UID, identifies the mark. Times are compared with one another for
// equality alone, but where a record could not name marks, or the Node is newer
// than the pod; and these are times of the API server too.

// mark identifies the pod's mark.
func (p *Pod) mark() Incarnation {
	return NewIncarnation(p.UID, []string{"marked", strconv.FormatInt(p.MarkedSince.Unix(), 10)})
}

// BelievesMark tells whether a marked pod's mark speaks of the node's current
// boot and the current Node. When it does not, time alone will not do.
func (t Trust) BelievesMark(p *Pod) bool {
	switch {
	case t.digest == digestAll:
		return p.MarkedSince.After(t.since)
	case t.digest.has(p.mark()):
		return false
	case p.Created.Before(t.nodeCreated):
		return p.MarkedSince.After(t.nodeCreated)
	}
	return true
}
