// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A figure is something that is measured.
type figure struct {
	id    string
	title string
	// ready is what the daemon becomes.
	ready bool
	// goal is in words.
	goal string
}

// reclose is the figure that is measured with damping, too.
const reclose = "reclose"

// figures are what is measured, in the order in which a daemon can change.
var figures = []figure{
	{id: "open", ready: true, title: "daemon ready → taint gone", goal: "p50 ≤ 1.15 ×, p99 ≤ 1.5 × the limit"},
	{id: reclose, title: "daemon not ready → taint present (closeAfterSeconds: 0)", goal: "p99 ≤ 50 ms"},
}

// Who is measured.
const (
	ofNodegate = iota
	ofLimit
	subjects
)

// percentiles are those that are told.
var percentiles = []int{50, 99}

// A quantiles is one round's latencies of one subject, by percentile.
type quantiles map[int]time.Duration

// results are what a run has found.
type results struct {
	options *options
	began   time.Time
	load    []string // the machine's load averages before and after
	current map[string]*[subjects][]time.Duration
	rounds  map[string][][subjects]quantiles
	damped  quantiles // of closing again with damping
}

func newResults(o *options) *results {
	r := &results{options: o, began: time.Now(), rounds: map[string][][subjects]quantiles{}}
	r.load = append(r.load, loadAverage())
	r.current = map[string]*[subjects][]time.Duration{}
	return r
}

func (r *results) add(id string, subject int, latencies []time.Duration) {
	if r.current[id] == nil {
		r.current[id] = new([subjects][]time.Duration)
	}
	r.current[id][subject] = append(r.current[id][subject], latencies...)
}

func (r *results) endRound() {
	for id, samples := range r.current {
		var round [subjects]quantiles
		for subject := range samples {
			round[subject] = quantilesOf(samples[subject])
		}
		r.rounds[id] = append(r.rounds[id], round)
	}
	clear(r.current)
}

func (r *results) finish() { r.load = append(r.load, loadAverage()) }

// quantilesOf takes the nearest rank, which is always one of the samples.
func quantilesOf(samples []time.Duration) quantiles {
	sorted := slices.Sorted(slices.Values(samples))
	q := quantiles{}
	for _, p := range percentiles {
		q[p] = sorted[(len(sorted)*p+99)/100-1]
	}
	return q
}

// A spread is the middle and the ends of what the rounds came to.
type spread struct {
	Median, Min, Max float64
}

func spreadOf(values []float64) spread {
	slices.Sort(values)
	n := len(values)
	return spread{(values[(n-1)/2] + values[n/2]) / 2, values[0], values[n-1]}
}

func (s spread) text(format string) string {
	return fmt.Sprintf(format+" ("+format+"–"+format+")", s.Median, s.Min, s.Max)
}

// A row is one figure at one percentile, over all rounds.
type row struct {
	Figure     string `json:"figure"`
	Title      string `json:"title"`
	Goal       string `json:"goal"`
	Percentile int    `json:"percentile"`
	// In milliseconds.
	Nodegate spread `json:"nodegateMilliseconds"`
	Limit    spread `json:"limitMilliseconds"`
	Ratio    spread `json:"ratio"`
}

func (r *results) rows() []row {
	var rows []row
	for _, f := range figures {
		for _, p := range percentiles {
			var nodegate, limit, ratio []float64
			for _, round := range r.rounds[f.id] {
				a, b := milliseconds(round[ofNodegate][p]), milliseconds(round[ofLimit][p])
				nodegate, limit, ratio = append(nodegate, a), append(limit, b), append(ratio, a/b)
			}
			rows = append(rows, row{
				Figure: f.id, Title: f.title, Goal: f.goal, Percentile: p,
				Nodegate: spreadOf(nodegate), Limit: spreadOf(limit), Ratio: spreadOf(ratio),
			})
		}
	}
	return rows
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// table writes the figures as Markdown.
func (r *results) table(out io.Writer) {
	fmt.Fprintln(out, "| figure | | nodegate, ms | limit, ms | ratio | goal |\n| --- | --- | --- | --- | --- | --- |")
	for _, row := range r.rows() {
		fmt.Fprintf(out, "| %s | p%d | %s | %s | %s | %s |\n", row.Title, row.Percentile,
			row.Nodegate.text("%.1f"), row.Limit.text("%.1f"), row.Ratio.text("%.2f"), row.Goal)
	}
	for _, p := range percentiles {
		fmt.Fprintf(out, "| the same with closeAfterSeconds: %.0f, one turn | p%d | %.1f | | | p99 ≤ %d ms |\n",
			damping.Seconds(), p, milliseconds(r.damped[p]), (damping + recloseGoal).Milliseconds())
	}
}

// recloseGoal is how long closing again may take besides its damping.
const recloseGoal = 50 * time.Millisecond

// write writes RESULTS.md and results.json into a directory.
func (r *results) write(dir string) error {
	var page bytes.Buffer
	fmt.Fprintf(&page, "# Results\n\nMeasured by `%s` on %s: %s, %d CPUs, %s.\n", r.command(), r.began.UTC().Format(time.DateOnly), processor(), runtime.NumCPU(), runtime.Version())
	fmt.Fprintf(&page, "Load average before %s, after %s.\n\n", r.load[0], r.load[1])
	fmt.Fprintf(&page, "%d nodes, %d changes a second, %d rounds of nodegate, limit, limit, nodegate. Medians of the rounds, with\n", r.options.nodes, r.options.rate, r.options.rounds)
	fmt.Fprint(&page, "the least and the greatest; a ratio is of one round. Time runs from before the daemon's status is sent to when a\n",
		"watch of its own sees the taint: it includes that write. What the limit is, stands in `bench/main.go`. Damping\n",
		"counts from the pod's condition, whose time the API cuts to whole seconds: it may end up to one early.\n\n")
	r.table(&page)
	if err := os.WriteFile(filepath.Join(dir, "RESULTS.md"), page.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	content, err := json.MarshalIndent(r.rows(), "", "  ")
	if err != nil {
		return fmt.Errorf("marshalling results: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "results.json"), append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing results: %w", err)
	}
	return nil
}

func (r *results) command() string {
	o := r.options
	return fmt.Sprintf("go run ./bench -nodes %d -rate %d -rounds %d", o.nodes, o.rate, o.rounds)
}

// loadAverage is the machine's, over one, five and fifteen minutes.
func loadAverage() string {
	content, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(content))
	if err != nil || len(fields) < 3 {
		return "unknown"
	}
	return strings.Join(fields[:3], " ")
}

// processor is what the machine calls its own.
func processor() string {
	content, _ := os.ReadFile("/proc/cpuinfo") // elsewhere than on Linux there is none
	for line := range strings.Lines(string(content)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return "unknown processor"
}
