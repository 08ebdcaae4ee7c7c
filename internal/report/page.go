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
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
		"took": formatSeconds, "count": thousands, "counted": counted, "share": share, "percent": percent, "shade": shade, "phase": phaseName, "named": cmp.Or[string],
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

// WorstGates returns the gates, those with the most problems first.
func (v *view) WorstGates() []Gate {
	all := slices.Clone(v.Gates)
	slices.SortStableFunc(all, func(a, b Gate) int {
		return cmp.Or(cmp.Compare(b.Overdue, a.Overdue), cmp.Compare(b.Closed, a.Closed), cmp.Compare(b.Opened.P90, a.Opened.P90))
	})
	return all
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

// formatSeconds formats a duration that is given in seconds.
func formatSeconds(s float64) string {
	switch t := int64(math.Round(s)); {
	case s < 0:
		return "-" + formatSeconds(-s)
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
