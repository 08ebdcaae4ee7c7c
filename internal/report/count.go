// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/timeline"
)

// Spread is a distribution of durations in seconds. Percentiles are durations that
// occurred (nearest rank).
type Spread struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// durations are the values of a distribution.
type durations []time.Duration

func (d durations) spread() Spread {
	if len(d) == 0 {
		return Spread{}
	}
	slices.Sort(d)
	rank := func(p float64) float64 {
		return seconds(d[int(math.Ceil(p*float64(len(d))))-1])
	}
	return Spread{Count: len(d), P50: rank(0.50), P90: rank(0.90), P99: rank(0.99), Max: rank(1)}
}

// seconds rounds to tenths of a second: records have a resolution of milliseconds, and most
// of the API of seconds.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*10) / 10 }

// count accumulates the values of all nodes.
type count struct {
	within         time.Duration
	fleet          *groupCount
	pools, zones   map[string]*groupCount
	gates          map[string]*gateCount
	overdue, later int
}

type groupCount struct {
	name                    string
	nodes, held             int
	ready, opened, firstPod durations
}

type gateCount struct {
	Gate
	opened  durations
	phases  map[Phase]time.Duration // keys have no Seconds
	signals []signalCount
}

type signalCount struct {
	Signal
	held  durations
	alone time.Duration
}

func newCount(f *Facts) *count {
	c := &count{
		within: f.Within, fleet: &groupCount{}, pools: make(map[string]*groupCount), zones: make(map[string]*groupCount),
		gates: make(map[string]*gateCount, len(f.Gates.Gates)),
	}
	for i := range f.Gates.Gates {
		g := &f.Gates.Gates[i]
		of := c.gate(g.Name)
		of.Mode, of.Taint, of.CloseWhen, of.NotInForce = g.Mode.OrDefault(), gate.TaintText(g.Taint), g.CloseWhen, f.Gates.Rejection(g.Name)
		for _, s := range g.Signals {
			of.signals = append(of.signals, signalCount{Signal: Signal{Name: s.Name}})
		}
	}
	return c
}

// gate returns the accumulated values of a gate.
func (c *count) gate(name string) *gateCount {
	if c.gates[name] == nil {
		c.gates[name] = &gateCount{Gate: Gate{Gate: name}, phases: make(map[Phase]time.Duration)}
	}
	return c.gates[name]
}

func (c *count) node(n *Node) {
	overdue := false
	for i := range n.Gates {
		g := &n.Gates[i]
		overdue = overdue || g.Overdue && g.Holds()
		c.gate(g.Gate).node(n, g, c.within)
	}
	for _, name := range n.unrecorded {
		c.gate(name).Open++
	}
	for _, name := range n.closing {
		c.gate(name).closing++
	}
	opened, ok := n.Opened.After(n.Created)
	late := ok && opened > c.within || n.Opened.Doubt == timeline.Again
	if overdue {
		c.overdue++
	}
	if late {
		c.later++
	}
	for _, of := range []*groupCount{c.fleet, group(c.pools, n.Pool), group(c.zones, n.Zone)} {
		of.node(n, c.within)
	}
}

func group(groups map[string]*groupCount, name string) *groupCount {
	if groups[name] == nil {
		groups[name] = &groupCount{name: name}
	}
	return groups[name]
}

func (c *groupCount) node(n *Node, within time.Duration) {
	c.nodes++
	if n.Held {
		c.held++
	}
	if d, ok := n.Ready.After(n.Created); ok && d <= within {
		c.ready = append(c.ready, d)
	}
	d, ok := n.Opened.After(n.Created)
	if !ok || d > within {
		return
	}
	c.opened = append(c.opened, d)
	if p := n.FirstPod; p != nil && p.Bound.Sub(n.Created) <= within {
		c.firstPod = append(c.firstPod, max(p.Bound.Sub(n.Opened.At), 0))
	}
}

func (c *groupCount) done() Group {
	return Group{
		Name: c.name, Nodes: c.nodes, Held: c.held,
		Ready: c.ready.spread(), Opened: c.opened.spread(), FirstPod: c.firstPod.spread(),
	}
}

// groups returns the groups, slowest first.
func groups(counted map[string]*groupCount) []Group {
	all := make([]Group, 0, len(counted))
	for _, name := range slices.Sorted(maps.Keys(counted)) {
		all = append(all, counted[name].done())
	}
	slices.SortStableFunc(all, func(a, b Group) int { return cmp.Compare(b.Opened.P90, a.Opened.P90) })
	return all
}

func (c *gateCount) node(n *Node, g *timeline.Gate, within time.Duration) {
	if g.Overdue {
		c.Overdue++
	}
	if g.State == v1alpha1.StateClosed {
		c.closed(g)
		return
	}
	c.Open++
	took, ok := g.Opened.After(n.Created)
	if !ok || took > within || g.CloseWhen {
		return
	}
	c.opened = append(c.opened, took)
	for i := range min(len(g.Signals), len(c.signals)) {
		if d, ok := g.Signals[i].Held.After(n.Created); ok && d <= within {
			c.signals[i].held = append(c.signals[i].held, d)
		}
	}
	if last, alone := g.Last(&n.History); last >= 0 && last < len(c.signals) {
		c.signals[last].Last++
		c.signals[last].alone += alone
	}
	for _, part := range parts(n, g) {
		c.phases[part.Phase] += part.took
	}
}

// closed counts a node on which the gate is closed.
func (c *gateCount) closed(g *timeline.Gate) {
	held := 0
	if g.Holds() {
		held = 1
	}
	c.Closed++
	if g.Opens {
		c.opening += held
	}
	for _, w := range g.Awaited() {
		if w < len(c.signals) {
			c.signals[w].Waiting++
			c.signals[w].holding += held
		}
	}
}

// part is the duration of a phase of one gate on one node.
type part struct {
	Phase
	took time.Duration
}

// parts divides the time from the node's creation to the gate's opening into phases.
func parts(n *Node, g *timeline.Gate) []part {
	opened, _ := g.Opened.After(n.Created)
	last, _ := g.Last(&n.History)
	held := opened
	if last >= 0 {
		held, _ = g.Signals[last].Held.After(n.Created)
		held = min(held, opened)
	}
	startUp, _ := n.Ready.After(n.Created)
	startUp = min(startUp, held)
	if last < 0 {
		return []part{{Phase{Kind: PhaseStartUp}, startUp}, {Phase{Kind: PhaseUntold}, opened - startUp}}
	}
	return []part{
		{Phase{Kind: PhaseStartUp}, startUp},
		{Phase{Kind: PhaseSignal, Signal: g.Signals[last].Name}, held - startUp},
		{Phase{Kind: PhaseSettling}, opened - held},
	}
}

func (c *count) allGates() []Gate {
	all := make([]Gate, 0, len(c.gates))
	for _, name := range slices.Sorted(maps.Keys(c.gates)) {
		all = append(all, c.gates[name].done())
	}
	return all
}

func (c *gateCount) done() Gate {
	g := c.Gate
	g.Opened = c.opened.spread()
	g.Phases, g.Signals = []Phase{}, []Signal{}
	add := func(p Phase) {
		if took := c.phases[p]; took > 0 {
			p.Seconds = seconds(took)
			g.Phases = append(g.Phases, p)
		}
	}
	add(Phase{Kind: PhaseStartUp})
	for i := range c.signals {
		s := &c.signals[i]
		s.Held, s.AloneSeconds = s.held.spread(), seconds(s.alone)
		g.Signals = append(g.Signals, s.Signal)
		add(Phase{Kind: PhaseSignal, Signal: s.Name})
	}
	add(Phase{Kind: PhaseUntold})
	add(Phase{Kind: PhaseSettling})
	return g
}
