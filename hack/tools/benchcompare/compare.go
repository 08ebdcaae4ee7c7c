// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"path"
	"text/tabwriter"
)

// Differences up to these limits are not reported. Most counts are exact. Counts
// of code that uses hashes are not, because each process has another seed: a
// string may be in a dictionary, or may have collided with another one.
const (
	// Up to fewAllocations, counts are compared exactly. Above, a difference of
	// one, plus allocationsPercent, is ignored.
	fewAllocations     = 10
	allocationsPercent = 2
	bytesPercent       = 10
	// bytesLeast is ignored even for small operations, because it is the step
	// between two of Go's allocation sizes.
	bytesLeast = 32
)

// A verdict is the result of comparing a benchmark with the baseline.
type verdict string

const (
	same    verdict = "same"
	better  verdict = "better"
	worse   verdict = "WORSE"
	missing verdict = "MISSING"
	unknown verdict = "NEW"
)

// A row is one benchmark, before and now.
type row struct {
	benchmark
	before, now cost
	verdict     verdict
}

// compare returns a row for each benchmark of either, in their order.
func compare(before, now costs) []row {
	all := costs{}
	for b, c := range before {
		all[b] = c
	}
	for b, c := range now {
		all[b] = c
	}
	rows := make([]row, 0, len(all))
	for _, b := range all.sorted() {
		was, known := before[b]
		is, run := now[b]
		r := row{benchmark: b, before: was, now: is}
		switch {
		case !run:
			r.verdict = missing
		case !known:
			r.verdict = unknown
		default:
			r.verdict = judge(was, is)
		}
		rows = append(rows, r)
	}
	return rows
}

// judge: what is worse in one respect is worse, whatever it gained in the other.
func judge(before, now cost) verdict {
	allocations := now.allocations - before.allocations
	allocationsMay := 0.0
	if before.allocations > fewAllocations {
		allocationsMay = 1 + math.Floor(before.allocations*allocationsPercent/100)
	}
	size := now.bytes - before.bytes
	sizeMay := max(before.bytes*bytesPercent/100, bytesLeast)
	switch {
	case allocations > allocationsMay, size > sizeMay:
		return worse
	case allocations < -allocationsMay, size < -sizeMay:
		return better
	}
	return same
}

// fails reports whether a row makes the check fail. A benchmark without a
// baseline fails, because otherwise nobody would notice that it is not guarded.
func (r *row) fails() bool {
	return r.verdict == worse || r.verdict == missing || r.verdict == unknown
}

// tell writes the rows that differ, and what to do. It returns the number of rows
// that fail.
func tell(w io.Writer, rows []row) (failed int) {
	count := map[verdict]int{}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := range rows {
		r := &rows[i]
		if r.fails() {
			failed++
		}
		if count[r.verdict]++; r.verdict == same {
			continue
		}
		fmt.Fprintf(table, "%s\t%s %s\tallocations %s\tbytes %s\n", r.verdict, path.Base(r.pkg), r.name,
			r.change(r.before.allocations, r.now.allocations), r.change(r.before.bytes, r.now.bytes))
	}
	table.Flush()
	fmt.Fprintf(w, "%d benchmarks: %d as in the baseline, %d better, %d worse, %d missing, %d new\n",
		len(rows), count[same], count[better], count[worse], count[missing], count[unknown])
	switch {
	case failed > 0:
		fmt.Fprint(w, advice)
	case count[better] > 0:
		fmt.Fprintln(w, "Run 'make bench-baseline' and commit what it writes, so that what is better stays so.")
	}
	return failed
}

const advice = `Find out what allocates: go test -run '^$' -bench NAME -memprofile mem.out PACKAGE, then
go tool pprof -sample_index=alloc_objects mem.out. If it has to be so, or if benchmarks came
or went, run 'make bench-baseline' and say in the commit why.
`

func (r *row) change(before, now float64) string {
	switch r.verdict {
	case missing:
		return fmt.Sprintf("%.0f → ?", before)
	case unknown:
		return fmt.Sprintf("? → %.0f", now)
	}
	return fmt.Sprintf("%.0f → %.0f", before, now)
}
