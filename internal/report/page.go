// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"crypto/sha256"
	_ "embed" // for the parts of the page
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/printer"
	"github.com/nodegate/nodegate/internal/timeline"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
		"took": FormatSeconds, "count": thousands, "counted": counted, "share": share, "percent": percent, "shade": shade, "phase": phaseName, "named": named,
	}).Parse(pageHTML))
)

// firstRows is the initial number of rows of a list on the page.
const firstRows = 6

// view is the input of the page's template.
type view struct {
	*Report
	CSS    template.CSS
	Script template.JS
	// Policy is the content security policy: the browser runs and loads nothing but what is
	// in the page.
	Policy string
	Data   *pageData
	// Held are the nodes that have been held longest.
	Held []heldNode
	// First are the first nodes, for browsers without scripts.
	First []Node
}

// heldNode is a held node with the gate that has held it longest.
type heldNode struct {
	*Node
	Gate *timeline.Gate
	For  string
	// Waits names the signals that the gate waits for.
	Waits string
	// Messages are those of these signals or, if no signal can open the gate at present, the
	// reason why.
	Messages []string
	// Others names the other gates that hold the node.
	Others string
	// Overdue is true if one of the gates that hold the node is past its deadline.
	Overdue bool
}

// WriteHTML writes the report as a self-contained HTML file.
func (r *Report) WriteHTML(out io.Writer) error {
	data, err := r.data()
	if err != nil {
		return err
	}
	v := &view{
		Report: r, CSS: template.CSS(pageCSS), Script: template.JS(pageJS), Data: data, First: r.Nodes[:min(len(r.Nodes), 8*firstRows)],
		Policy: fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; base-uri 'none'; form-action 'none'", hash(pageCSS), hash(pageJS)),
	}
	for i := range min(r.Fleet.Held, firstRows) { // held nodes come first
		v.Held = append(v.Held, held(&r.Nodes[i], r.Time))
	}
	if err := pageTemplate.Execute(out, v); err != nil {
		return fmt.Errorf("writing the page: %w", err)
	}
	return nil
}

// hash returns the source expression of a text for a content security policy.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// held returns a held node with the gate that has held it longest and what this gate waits
// for.
func held(n *Node, now time.Time) heldNode {
	h := heldNode{Node: n, Gate: heldLongest(n)}
	h.Waits, h.Messages = awaits(h.Gate)
	h.Others, h.Overdue = others(n, h.Gate)
	h.For = cmp.Or(closedFor(h.Gate.Closed, now), "unknown duration")
	return h
}

// heldLongest returns the gate that has held a held node longest, as far as that is known.
func heldLongest(n *Node) *timeline.Gate {
	var longest *timeline.Gate
	for i := range n.Gates {
		if g := &n.Gates[i]; g.Holds() && (longest == nil || longer(g.Closed, longest.Closed)) {
			longest = g
		}
	}
	return longest
}

// closedFor returns for how long a gate has been closed, or "" if that is unknown. An adopted taint
// may have been on the node before the gate adopted it.
func closedFor(closed timeline.Moment, now time.Time) string {
	if closed.At.IsZero() {
		return ""
	}
	elapsed := FormatSeconds(max(now.Sub(closed.At), 0).Seconds()) // clocks may differ
	if !closed.Known() {
		return "at least " + elapsed
	}
	return elapsed
}

// TimeToOpen returns the time that a node took to open or, if it is held, for which it has been held.
func (v *view) TimeToOpen(n Node) string {
	if n.Held {
		return "held " + held(&n, v.Time).For
	}
	if took, known := n.Opened.After(n.Created); known {
		return FormatSeconds(took.Seconds())
	}
	return "–"
}

// awaits returns the names of the signals that a gate waits for, and the messages about it.
func awaits(g *timeline.Gate) (string, []string) {
	var names, messages []string
	for _, w := range g.Awaited() {
		names = append(names, g.Signals[w].Name)
		messages = append(messages, g.Signals[w].Message)
	}
	for _, w := range g.MayAwait() {
		messages = append(messages, g.Signals[w].Message)
	}
	switch {
	case g.Blocked != "":
		messages = []string{g.Blocked}
	case g.Unknown:
		messages = []string{"there is no NodeGate of this name: it was deleted, or the gate is declared in a file"}
	case g.Opens:
		messages = []string{"nothing keeps the gate closed: the controller opens it immediately, unless it is not running"}
	}
	return printer.Enumerate(names, "and"), messages
}

// others returns the names of the other gates that hold a node, and whether any of the gates that
// hold it is overdue.
func others(n *Node, except *timeline.Gate) (names string, overdue bool) {
	var all []string
	for i := range n.Gates {
		g := &n.Gates[i]
		if !g.Holds() {
			continue
		}
		overdue = overdue || g.Overdue
		switch {
		case g == except:
		case g.Overdue:
			all = append(all, g.Gate+" (overdue)")
		default:
			all = append(all, g.Gate)
		}
	}
	return printer.Enumerate(all, "and"), overdue
}

// longer reports whether a gate that closed at a is known to have been closed for longer
// than one that closed at b.
func longer(a, b timeline.Moment) bool {
	return a.Known() && (!b.Known() || a.At.Before(b.At))
}

// HeldMore returns the number of held nodes that are not in Held.
func (v *view) HeldMore() int { return max(v.Fleet.Held-len(v.Held), 0) }

// awaited is a signal that nodes wait for. Without a name, it is the controller, which is about to
// open the gate.
type awaited struct {
	Gate, Signal string
	CloseWhen    bool
	Nodes        int
}

// maxAwaited is the maximum number of them in the summary.
const maxAwaited = 4

// allAwaited returns what held nodes wait for, that of most nodes first.
func (v *view) allAwaited() []awaited {
	var all []awaited
	for i := range v.Gates {
		g := &v.Gates[i]
		if gate.IsSoft(g.Taint) {
			continue // it holds no node
		}
		if g.opening > 0 {
			all = append(all, awaited{Gate: g.Gate, Nodes: g.opening})
		}
		for _, s := range g.Signals {
			if s.Waiting > 0 {
				all = append(all, awaited{g.Gate, s.Name, g.CloseWhen, s.Waiting})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b awaited) int { return cmp.Compare(b.Nodes, a.Nodes) })
	return all
}

// Awaited returns what most held nodes wait for.
func (v *view) Awaited() []awaited {
	all := v.allAwaited()
	return all[:min(len(all), maxAwaited)]
}

// AwaitedMore returns the number of those that are not in Awaited.
func (v *view) AwaitedMore() int { return max(len(v.allAwaited())-maxAwaited, 0) }

// maxUnread is the maximum number of read errors in the summary.
const maxUnread = 3

// FirstUnread returns the first read errors.
func (v *view) FirstUnread() []string { return v.Unread[:min(len(v.Unread), maxUnread)] }

// UnreadMore returns the number of read errors that are not in FirstUnread.
func (v *view) UnreadMore() int { return max(len(v.Unread)-maxUnread, 0) }

// WorstGates returns the gates, those with the most problems first.
func (v *view) WorstGates() []Gate {
	all := slices.Clone(v.Gates)
	slices.SortStableFunc(all, func(a, b Gate) int {
		return cmp.Or(cmp.Compare(b.Overdue, a.Overdue), cmp.Compare(b.Closed, a.Closed), cmp.Compare(b.Opened.P90, a.Opened.P90))
	})
	return all
}

// Headline returns how many nodes are held.
func (r *Report) Headline() string {
	if r.Fleet.Nodes == 0 {
		return "There are no nodes"
	}
	verb := printer.IsAre(r.Fleet.Held)
	if r.Fleet.Nodes == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%s of %s %s held", thousands(r.Fleet.Held), counted(r.Fleet.Nodes, "node"), verb)
}

// thousands formats a number with thousands separators.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// counted returns a number with thousands separators, followed by a noun, which gets the plural s
// if needed.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return thousands(n) + " " + noun + "s"
}

// groupsView is the view of pools or of zones.
type groupsView struct {
	Title, What, Key, Otherwise string
	Groups                      []Group
	Pods                        bool
	slowest                     float64
}

// ByPool returns the view of pools.
func (v *view) ByPool() groupsView {
	return groupsView{"Pools", "Pool", "pool", "no pool", v.Pools, v.PodsRead, slowest(v.Pools)}
}

// ByZone returns the view of zones.
func (v *view) ByZone() groupsView {
	return groupsView{"Zones", "Zone", "zone", "no zone", v.Zones, v.PodsRead, slowest(v.Zones)}
}

func slowest(groups []Group) float64 {
	var slowest float64
	for i := range groups {
		slowest = max(slowest, groups[i].Opened.P99)
	}
	return slowest
}

// Range returns a bar from the median to the 99th percentile, on the same scale for all
// groups.
func (v groupsView) Range(s Spread) []portion {
	at := func(seconds float64) float64 {
		if v.slowest == 0 {
			return 0
		}
		return seconds / v.slowest * 1000
	}
	return []portion{
		{Begin: at(s.P50), Width: at(s.P90 - s.P50), Shade: 0},
		{Begin: at(s.P90), Width: at(s.P99 - s.P90), Shade: 1},
		{Begin: max(at(s.P50)-4, 0), Width: 8, Shade: 2},
	}
}

// FormatSeconds formats a duration that is given in seconds.
func FormatSeconds(s float64) string {
	switch t := int64(math.Round(s)); {
	case s < 0:
		return "-" + FormatSeconds(-s)
	case s > 0 && s < 10 && s != math.Trunc(s):
		return fmt.Sprintf("%.1fs", s)
	case t < 60:
		return fmt.Sprintf("%ds", t)
	case t < 3600:
		return fmt.Sprintf("%dm %02ds", t/60, t%60)
	case t < 2*86400:
		return fmt.Sprintf("%dh %02dm", t/3600, t/60%60)
	default:
		return fmt.Sprintf("%dd %dh", t/86400, t/3600%24)
	}
}

// portion is a part of a bar. Begin and Width are in thousandths of the bar.
type portion struct {
	Phase
	Begin, Width float64
	// Shade is the index of its color.
	Shade int
}

// share divides a bar among phases.
func share(g Gate) []portion {
	total := sum(g.Phases)
	if total == 0 {
		return nil
	}
	parts := make([]portion, 0, len(g.Phases))
	begin := 0.0
	for _, p := range g.Phases {
		width := p.Seconds / total * 1000
		of := slices.IndexFunc(g.Signals, func(s Signal) bool { return s.Name == p.Signal })
		parts = append(parts, portion{Phase: p, Begin: begin, Width: width, Shade: max(of, 0) % shades})
		begin += width
	}
	return parts
}

// shades is the number of colors of signals.
const shades = 6

func sum(phases []Phase) float64 {
	total := 0.0
	for _, p := range phases {
		total += p.Seconds
	}
	return total
}

// shade returns the CSS class of a portion.
func shade(p portion) string {
	switch p.Kind {
	case PhaseSignal:
		return fmt.Sprintf("signal-%d", p.Shade)
	case PhaseStartUp:
		return "startup"
	case PhaseUntold:
		return "untold"
	}
	return "settling"
}

func phaseName(p Phase) string {
	switch p.Kind {
	case PhaseSignal:
		return p.Signal
	case PhaseStartUp:
		return "node start-up"
	case PhaseUntold:
		return "signals without a time"
	}
	return "settling"
}

// percent formats a part as a percentage of a whole.
func percent(part, whole any) string {
	p, w := number(part), number(whole)
	switch {
	case w == 0 || p == 0:
		return "0 %"
	case p/w < 0.01:
		return "<1 %"
	}
	return fmt.Sprintf("%.0f %%", p/w*100)
}

func number(n any) float64 {
	switch n := n.(type) {
	case int:
		return float64(n)
	case float64:
		return n
	}
	return 0
}

// named returns the name, or otherwise if the name is empty.
func named(name, otherwise string) string {
	if name == "" {
		return otherwise
	}
	return name
}
