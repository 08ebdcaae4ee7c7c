// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
)

// Runs.
//
// A pod that runs once, such as that of a Job, differs from a daemon in two ways. No
// kubelet corrects the status of a pod that has finished: it survives reboots, so the
// passing of time proves nothing. And such pods are deleted after their success, while
// the success must continue to count.
//
// A run belongs to the node's current boot if the pod's label names that boot. Without
// the label, it must not be known from before the boot: not in a digest that was taken
// when the gate closed, not older than the Node. Runs of other boots remain known in the
// record (Record.FormerRuns) for as long as the gate exists on the node, because their
// pods may exist for that long. If nodegate did not observe the start of the boot, only
// runs that started after the boot was first observed count.
//
// The record also stores which runs succeeded in the record's boot
// (Record.Completed). It is written together with the taint when the gate opens, and
// before that if the gate waits for something else.

// Run describes how far a pod that runs once has come. It is known only for pods of
// queries with Runs.
type Run struct {
	// Succeeded is true if all containers have exited with success.
	Succeeded bool
	// Started is the time at which the first of the pod's current containers started,
	// and Ended the time at which the last of them exited, by the node's clock. Zero if
	// no container has.
	Started, Ended time.Time
	// Boot is the ID of the boot to which the pod belongs according to its label, or "".
	Boot string
}

// Remembering is a Signal whose evidence may be deleted while it continues to count.
type Remembering interface {
	// Completions adds the successes that the record must contain. in.Completed contains
	// those that it contains already.
	Completions(in Input, into *Completions)
	// Remembers reports whether in.Completed contains exactly these successes.
	Remembers(in Input) bool
}

// Completions contains the times of successful runs, by an ID of what has run. It is a
// sorted list of ID=TIME, separated by spaces, with times in Unix seconds.
type Completions string

// Of returns the time at which the run with an ID succeeded, or zero.
func (c Completions) Of(id string) time.Time {
	for entry := range strings.SplitSeq(string(c), " ") {
		if rest, ok := strings.CutPrefix(entry, id+"="); ok {
			if seconds, err := strconv.ParseInt(rest, 10, 64); err == nil {
				return time.Unix(seconds, 0).UTC()
			}
		}
	}
	return time.Time{}
}

// Add adds the success of a run, unless a later one with the same ID is contained. IDs
// must be free of spaces and "=".
func (c *Completions) Add(id string, at time.Time) {
	if !c.Of(id).Before(at.Truncate(time.Second)) {
		return
	}
	entries := strings.Fields(string(*c))
	entries = slices.DeleteFunc(entries, func(entry string) bool { return strings.HasPrefix(entry, id+"=") })
	entries = append(entries, id+"="+strconv.FormatInt(at.Unix(), 10))
	slices.Sort(entries)
	*c = Completions(strings.Join(entries, " "))
}

// completed returns the successes in a record that count in the node's current boot.
func (r *Record) completed(n *Node) Completions {
	if r.Boot != "" && r.Boot != n.BootID {
		return ""
	}
	return r.Completed
}

// withRuns copies what another record of the same gate contains about runs.
func (r *Record) withRuns(from *Record) *Record {
	r.Completed, r.FormerRuns = from.Completed, from.FormerRuns
	return r
}

// noteRuns updates what a record contains about runs, if the gate has signals that
// remember. It must be called after the signals have been read with the same record.
func (d *decider) noteRuns(s *slot, r *Record) {
	if !s.gate.Remembers {
		r.Completed, r.FormerRuns = "", ""
		return
	}
	if r.Boot != "" && r.Boot != d.Node.BootID {
		return
	}
	d.noteRunsWith(s, r, d.trustIn(r))
}

// noteRunsOfUnobservedBoot is noteRuns for a record that has just been updated to a boot
// whose start was not observed.
func (d *decider) noteRunsOfUnobservedBoot(s *slot, r *Record) {
	if s.gate.Remembers {
		trust := d.trustIn(r)
		trust.bootUnobserved = true
		d.noteRunsWith(s, r, trust)
	}
}

func (d *decider) noteRunsWith(s *slot, r *Record, trust Trust) {
	in := d.input(s, r, trust, false)
	same := true
	for _, signal := range s.gate.Signals {
		if remembering, ok := signal.Signal.(Remembering); ok {
			same = same && remembering.Remembers(in)
		}
	}
	if !same {
		var completed Completions
		for _, signal := range s.gate.Signals {
			if remembering, ok := signal.Signal.(Remembering); ok {
				remembering.Completions(in, &completed)
			}
		}
		r.Completed = completed
	}
	if !r.isOfUsedNode() { // no run counts that may belong to another boot
		d.noteFormerRuns(s, r, trust)
	}
}

// openedAfter returns the record of a gate that opens now and had another record.
func (d *decider) openedAfter(r *Record, s *slot, reason v1alpha1.Reason) *Record {
	if s.gate.Remembers && r.isOfUsedNode() {
		d.noteFormerRuns(s, r, d.trustIn(r))
	}
	return d.opened(s.gate, reason).withRuns(r)
}

// noteFormerRuns adds runs of other boots to the record. It leaves runs in the record
// whose pods have been deleted, unless it writes the list anyway.
func (d *decider) noteFormerRuns(s *slot, r *Record, trust Trust) {
	isFormer := func(p *Pod) bool { return p.Run != (Run{}) && p.Run.Boot == "" && !trust.BelievesRun(p) }
	missing := false
	for _, signal := range s.gate.Signals {
		pods, observed := signal.Evidence(d.Facts)
		if !observed || r.FormerRuns == digestAll {
			return
		}
		for i := range pods {
			missing = missing || isFormer(&pods[i]) && !r.FormerRuns.has(pods[i].Incarnation)
		}
	}
	if missing {
		pods, _ := s.gate.evidence(d.Facts)
		r.FormerRuns = digestWhere(pods, isFormer)
	}
}

// BelievesRun reports whether a pod that runs once belongs to the node's current boot
// and the current Node.
func (t Trust) BelievesRun(p *Pod) bool {
	switch {
	case t.node == nil:
		return true
	case p.Run.Boot != "":
		return p.Run.Boot == t.node.BootID
	case t.bootUnobserved:
		return p.Run.Started.After(t.bootSeen.Add(HeartbeatSkew))
	case t.digest == digestAll && p.Created.Before(t.since), t.formerRuns == digestAll && p.Created.Before(t.since),
		t.digest.has(p.Incarnation), t.formerRuns.has(p.Incarnation), slices.Contains(t.known, p.Incarnation):
		return p.Run.Started.After(t.bootKnown.Add(HeartbeatSkew))
	case p.Created.Before(t.nodeCreated), slices.Contains(t.former, p.Incarnation):
		return p.Run.Started.After(t.nodeCreated.Add(HeartbeatSkew))
	}
	return true
}
