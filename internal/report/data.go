// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/timeline"
)

// The data from which the page's script draws nodes. Names are short, because there are
// thousands of nodes. Times are in seconds after the node's own zero.

// pageData is embedded in the page as JSON.
type pageData struct {
	// Now is the time of the report.
	Now   float64    `json:"now"`
	Pools []string   `json:"pools"`
	Zones []string   `json:"zones"`
	Gates []dataGate `json:"gates"`
	// Nodes are rows. Only the first Full of them have signals.
	Nodes []json.RawMessage `json:"nodes"`
	Full  int               `json:"full"`
}

type dataGate struct {
	Name    string   `json:"n"`
	Signals []string `json:"s"`
}

type row struct {
	Name string `json:"n"`
	Pool int    `json:"p"`
	Zone int    `json:"z"`
	// Zero is the zero of the row's times, in Unix seconds: the Node's creation or, if the
	// node is held by gates that closed again, the time at which the first of these did.
	Zero float64 `json:"b"`
	// Again is true if a gate closed again, and Untold if it is unknown since when the node
	// is held.
	Again  bool `json:"a,omitempty"`
	Untold bool `json:"u,omitempty"`
	// Created is the Node's creation, which is before Zero if a gate closed again.
	Created float64 `json:"d,omitempty"`
	// Held is true if a gate holds the node, and Overdue if such a gate is past its deadline.
	Held    bool      `json:"h,omitempty"`
	Overdue bool      `json:"x,omitempty"`
	Ready   moment    `json:"r"`
	Opened  moment    `json:"o"`
	Pod     *rowPod   `json:"f,omitempty"`
	Gates   []rowGate `json:"g,omitempty"`
}

type rowGate struct {
	Gate   int  `json:"g"`
	Closed bool `json:"k,omitempty"`
	// Again is true if this gate closed again, even if another one has held the node since
	// its creation.
	Again      bool            `json:"a,omitempty"`
	Reason     v1alpha1.Reason `json:"y,omitempty"`
	Soft       bool            `json:"e,omitempty"`
	Overridden bool            `json:"v,omitempty"`
	Overdue    bool            `json:"x,omitempty"`
	Blocked    string          `json:"w,omitempty"`
	// Ignores is true if the gate's state does not depend on its signals.
	Ignores bool        `json:"i,omitempty"`
	From    moment      `json:"c"`
	Opened  moment      `json:"o"`
	Signals []rowSignal `json:"q,omitempty"`
}

type rowSignal struct {
	// State is empty if the signal holds.
	State   string  `json:"t,omitempty"`
	Message string  `json:"m,omitempty"`
	Held    moment  `json:"h"`
	Pod     *rowPod `json:"p,omitempty"`
}

type rowPod struct {
	Name    string   `json:"n"`
	Created *float64 `json:"c,omitempty"`
	Bound   *float64 `json:"b,omitempty"`
	Started *float64 `json:"s,omitempty"`
}

// moment is encoded as a number if it is known, as a doubt if there is no time, and as a
// list of both if the time is doubtful.
type moment struct {
	at    *float64
	doubt timeline.Doubt
}

// MarshalJSON implements json.Marshaler.
func (m moment) MarshalJSON() ([]byte, error) {
	switch {
	case m.doubt == "":
		return json.Marshal(m.at)
	case m.at == nil:
		return json.Marshal(m.doubt)
	}
	return json.Marshal([]any{*m.at, m.doubt})
}

// fullBytes limits the size of nodes with signals in the page. The remaining nodes, which
// opened fastest, have no signals.
const fullBytes = 2_000_000

// data returns the nodes in the form that the page's script reads.
func (r *Report) data() (*pageData, error) {
	d := &pageData{Now: float64(r.Time.UnixMilli()) / 1000, Pools: names(r.Pools), Zones: names(r.Zones), Gates: []dataGate{}, Nodes: make([]json.RawMessage, 0, len(r.Nodes))}
	gates := make(map[string]int, len(r.Gates))
	for i := range r.Gates {
		g := dataGate{Name: r.Gates[i].Gate, Signals: []string{}}
		for _, s := range r.Gates[i].Signals {
			g.Signals = append(g.Signals, s.Name)
		}
		gates[g.Name] = i
		d.Gates = append(d.Gates, g)
	}
	size := 0
	for i := range r.Nodes {
		full := size < fullBytes
		raw, err := json.Marshal(d.row(&r.Nodes[i], gates, full))
		if err != nil {
			return nil, fmt.Errorf("encoding node %s: %w", r.Nodes[i].Node, err)
		}
		if full {
			d.Full, size = i+1, size+len(raw)
		}
		d.Nodes = append(d.Nodes, raw)
	}
	return d, nil
}

func names(groups []Group) []string {
	all := make([]string, 0, len(groups))
	for i := range groups {
		all = append(all, groups[i].Name)
	}
	return all
}

func (d *pageData) row(n *Node, gates map[string]int, full bool) row {
	zero, since := n.Created, n.HeldSince()
	again := closedAgain(n, since, n.HeldSinceCreation())
	if again {
		zero = since
	}
	rel := relative(zero)
	r := row{
		Name: n.Node, Pool: slices.Index(d.Pools, n.Pool), Zone: slices.Index(d.Zones, n.Zone),
		Zero: float64(zero.UnixMilli()) / 1000, Again: again, Untold: n.Held && since.IsZero(), Held: n.Held, Created: seconds(n.Created.Sub(zero)),
		Ready: rel.moment(n.Ready), Opened: rel.moment(n.Opened), Pod: rel.pod(n.FirstPod),
	}
	for i := range n.Gates {
		g := &n.Gates[i]
		r.Overdue = r.Overdue || g.Overdue && g.Holds()
		closed := g.State == v1alpha1.StateClosed
		out := rowGate{
			Gate: gates[g.Gate], Closed: closed, Again: closed && closedAgain(n, g.Closed.At, g.Reason == v1alpha1.ReasonBirth), Reason: g.Reason, Soft: g.Soft,
			Overridden: g.Overridden, Overdue: g.Overdue, Blocked: g.Blocked, Ignores: closed && g.IgnoresSignals, From: rel.moment(g.Closed), Opened: rel.moment(g.Opened),
		}
		for j := range g.Signals {
			if full {
				out.Signals = append(out.Signals, rel.signal(&g.Signals[j]))
			}
		}
		r.Gates = append(r.Gates, out)
	}
	return r
}

// closedAgain reports whether a gate that closed at this time did not close at the node's
// creation. birth is true if its reason is the creation, and clocks may differ.
func closedAgain(n *Node, at time.Time, birth bool) bool {
	return !birth && at.After(n.Created.Add(gate.HeartbeatSkew))
}

// relative is the zero of a row's times.
type relative time.Time

// after returns the time in seconds after zero, or nil for the zero time.
func (zero relative) after(at time.Time) *float64 {
	if at.IsZero() {
		return nil
	}
	s := seconds(at.Sub(time.Time(zero)))
	return &s
}

func (zero relative) moment(m timeline.Moment) moment { return moment{zero.after(m.At), m.Doubt} }

func (zero relative) pod(p *timeline.Pod) *rowPod {
	if p == nil {
		return nil
	}
	return &rowPod{Name: p.Name, Created: zero.after(p.Created), Bound: zero.after(p.Bound), Started: zero.after(p.Started)}
}

func (zero relative) signal(s *timeline.Signal) rowSignal {
	out := rowSignal{Held: zero.moment(s.Held), Pod: zero.pod(s.Pod)}
	if s.State != gate.Holds.String() {
		out.State, out.Message = s.State, s.Message
	}
	return out
}
