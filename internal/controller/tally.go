// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// waitingMax bounds the list of waiting nodes in a gate's status.
const waitingMax = 10

// standing is how one gate stands on one node.
type standing struct {
	selected  bool
	state     string
	reason    v1alpha1.Reason
	zone      string
	since     time.Time
	signal    string
	blocked   v1alpha1.ReadingReason
	reading   gate.Reading
	throttled bool
	contended bool
}

// tally knows how every gate stands on every node, as last decided and
// written. It feeds status, metrics and budgets.
type tally struct {
	mu    sync.Mutex
	gates map[string]map[string]standing // by gate, by node
	// summaries are kept until something they tell of changes.
	summaries map[string]summary
}

func newTally() *tally {
	return &tally{gates: make(map[string]map[string]standing), summaries: make(map[string]summary)}
}

// set replaces what is known of a node; nil forgets the node.
func (t *tally) set(node string, standings map[string]standing) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, nodes := range t.gates {
		if _, was := nodes[node]; was {
			if _, is := standings[name]; !is {
				delete(nodes, node)
				delete(t.summaries, name)
			}
		}
		if len(nodes) == 0 {
			delete(t.gates, name)
		}
	}
	for name, s := range standings {
		if t.gates[name] == nil {
			t.gates[name] = make(map[string]standing)
		}
		if old, was := t.gates[name][node]; !was || old != s {
			t.gates[name][node] = s
			delete(t.summaries, name)
		}
	}
}

// budgeted counts a gate's members in a zone, and those of them that are
// closed for a reason that counts against the budget; nodes in flight are left
// out of the second, because their slots are counted.
func (t *tally) budgeted(gateName, zone string, inFlight map[string]bool) (members, closed int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for node, s := range t.gates[gateName] {
		if !s.selected || s.zone != zone {
			continue
		}
		members++
		if s.state == v1alpha1.StateClosed && isBudgeted(s.reason) && !inFlight[node] {
			closed++
		}
	}
	return members, closed
}

// summary is what a gate's status tells of its nodes.
type summary struct {
	counts    v1alpha1.NodeCounts
	waiting   []v1alpha1.WaitingNode
	throttled []string
	contended []string
}

// summary sums a gate up. What it returns is shared and read only.
func (t *tally) summary(gateName string) summary {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s, ok := t.summaries[gateName]; ok {
		return s
	}
	s := summarize(t.gates[gateName])
	t.summaries[gateName] = s
	return s
}

func summarize(nodes map[string]standing) summary {
	var out summary
	var closed []string
	for node, s := range nodes {
		if s.selected {
			out.counts.Selected++
		}
		switch s.state {
		case v1alpha1.StateOpen:
			out.counts.Open++
		case v1alpha1.StateClosed:
			out.counts.Closed++
			closed = append(closed, node)
		}
		if s.throttled {
			out.throttled = append(out.throttled, node)
		}
		if s.contended {
			out.contended = append(out.contended, node)
		}
	}
	slices.SortFunc(closed, func(a, b string) int {
		return cmp.Or(nodes[a].since.Compare(nodes[b].since), cmp.Compare(a, b))
	})
	for _, node := range closed[:min(len(closed), waitingMax)] {
		out.waiting = append(out.waiting, nodes[node].waiting(node))
	}
	slices.Sort(out.throttled)
	slices.Sort(out.contended)
	return out
}

func (s standing) waiting(node string) v1alpha1.WaitingNode {
	w := v1alpha1.WaitingNode{Node: node, Since: metav1.NewTime(s.since.Truncate(time.Second)), Signal: s.signal}
	if s.blocked != "" {
		w.Reason, w.Message = string(s.blocked), gate.Reading{Reason: s.blocked}.Message()
		return w
	}
	w.Reason, w.Message = string(s.reading.Reason), s.reading.Message()
	return w
}

// standings turns a decision that was carried out into what the tally keeps.
func standings(d *gate.Decision, set *gateSet, zone string) map[string]standing {
	out := make(map[string]standing, len(d.Verdicts))
	for i := range d.Verdicts {
		v := &d.Verdicts[i]
		if v.After == "" && !v.Selected {
			continue
		}
		s := standing{
			selected: v.Selected, state: v.After, reason: v.Reason, zone: zone, since: v.Since,
			blocked: v.Blocked, throttled: v.Wants == gate.WantBudget, contended: v.Contended,
		}
		if g, ok := set.gate(v.Gate); ok {
			if w := v.Waiting(); w >= 0 && v.After == v1alpha1.StateClosed {
				s.signal = g.Signals[w].Name
				s.reading = v.Readings[w]
				s.reading.Recheck = time.Time{} // changes without anything to tell
			}
		}
		out[v.Gate] = s
	}
	return out
}
