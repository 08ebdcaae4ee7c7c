// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Runs.
//
// A pod that runs once, such as that of a Job, differs from a daemon in two ways. No
// kubelet corrects the status of a pod that has finished: it survives reboots, so neither
// the passing of time nor the times in the status prove in which boot it ran. And such
// pods are deleted after their success, while the success must continue to count.
//
// A run therefore belongs to the boot that its pod's label names
// (v1alpha1.BootLabel), and
// to none without the label. Boot IDs are random, so a pod that names a boot was created
// after it began.
//
// The record stores which runs succeeded in the record's boot (Record.Completed). It is
// written together with the taint when the gate opens, and before that if the gate waits
// for something else.

// Run describes how far a pod that runs once has come. It is known only for pods of
// queries with Runs.
type Run struct {
	// Succeeded is true if all containers have exited with success.
	Succeeded bool
	// Started is the time at which the first of the pod's current containers started,
	// and Ended the time at which the last of them exited, by the node's clock. Zero if
	// no container has.
	Started, Ended time.Time
	// Boot is the ID of the boot that the pod's label names, or "".
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

// Success is a successful run. The zero value means that there is none.
type Success struct {
	// Ended is the time at which the run ended, and Created that at which its pod was
	// created.
	Ended, Created time.Time
}

// IsZero reports whether there is no success.
func (s Success) IsZero() bool { return s.Ended.IsZero() }

// Equal reports whether records contain the same for two successes.
func (s Success) Equal(other Success) bool {
	return s.Ended.Unix() == other.Ended.Unix() && s.Created.Unix() == other.Created.Unix()
}

// Latest returns the later end and the later creation of two successes.
func (s Success) Latest(other Success) Success {
	return Success{Ended: Latest(s.Ended, other.Ended), Created: Latest(s.Created, other.Created)}
}

// Completions contains successful runs, by an ID of what has run. It is a sorted list of
// ID=ENDED and ID.c=CREATED, separated by spaces, with times in Unix seconds.
type Completions string

// ofCreation follows the ID in the entry of the creation. The entry is separate because
// older versions ignore entries with an unknown ID, but can read ENDED only if nothing
// follows it.
const ofCreation = ".c"

// Of returns the success of a run with an ID. Older versions do not write the creation: the
// end counts as creation.
func (c Completions) Of(id string) (s Success) {
	for entry := range strings.SplitSeq(string(c), " ") {
		switch key, at, _ := strings.Cut(entry, "="); {
		case !isOf(key, id):
		case key == id:
			s.Ended = unixTime(at)
		default:
			s.Created = unixTime(at)
		}
	}
	if s.Created.IsZero() {
		s.Created = s.Ended
	}
	return s
}

// isOf reports whether the key of an entry is that of a run with an ID.
func isOf(key, id string) bool { return strings.TrimSuffix(key, ofCreation) == id }

// unixTime returns the time of a text in Unix seconds, or zero if it is none.
func unixTime(text string) time.Time {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// Add adds the success of a run. If one with the same ID is contained, the result has the
// latest times of both. IDs must be free of spaces, "=" and ".".
func (c *Completions) Add(id string, s Success) {
	s = s.Latest(c.Of(id))
	entries := []string{id + "=" + unixText(s.Ended), id + ofCreation + "=" + unixText(s.Created)}
	for entry := range strings.SplitSeq(string(*c), " ") {
		if key, _, _ := strings.Cut(entry, "="); key != "" && !isOf(key, id) {
			entries = append(entries, entry)
		}
	}
	slices.Sort(entries)
	*c = Completions(strings.Join(entries, " "))
}

func unixText(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// CompletedOn returns the successes in a record that count in the node's current boot.
func (r *Record) CompletedOn(n *Node) Completions {
	if r.Boot != n.BootID {
		return ""
	}
	return r.Completed
}

// noteRuns updates the successes in a record of the current boot, if the gate has signals
// that remember. It must be called after the signals have been read with the same record.
func (d *decider) noteRuns(s *slot, r *Record) {
	if !s.gate.Remembers {
		r.Completed = ""
		return
	}
	if r.Boot == "" || r.Boot != d.Node.BootID {
		return
	}
	in := d.input(s, r, d.trustIn(s.gate, r), false)
	same := true
	for _, signal := range s.gate.Signals {
		if remembering, ok := signal.Signal.(Remembering); ok {
			same = same && remembering.Remembers(in)
		}
	}
	if same {
		return
	}
	var completed Completions
	for _, signal := range s.gate.Signals {
		if remembering, ok := signal.Signal.(Remembering); ok {
			remembering.Completions(in, &completed)
		}
	}
	r.Completed = completed
}

// BelievesRun reports whether a pod that runs once belongs to the node's current boot and to
// the current Node.
func (t Trust) BelievesRun(p *Pod) bool {
	return t.node == nil || p.Run.Boot != "" && p.Run.Boot == t.node.BootID && !p.Created.Before(t.nodeCreated)
}
