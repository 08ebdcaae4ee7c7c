// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	"golang.org/x/perf/benchfmt"
)

// header is the beginning of the baseline. The format ignores such lines.
const header = `# Allocations per operation of the guarded benchmarks.
# 'make bench-compare' compares with this file; 'make bench-baseline' rewrites it.
`

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

// A cost is what one operation allocates.
type cost struct{ allocations, bytes float64 }

// unknown is printed as question marks.
var unknown = cost{math.NaN(), math.NaN()}

// costs contains costs by package and benchmark, separated by a space.
type costs map[string]cost

// add reads the output of 'go test -bench -benchmem', or a baseline. If a benchmark is
// already there, the minimum of each quantity counts.
func (c costs) add(r io.Reader, file string) error {
	reader := benchfmt.NewReader(r, file)
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.Result:
			allocations, counted := record.Value("allocs/op")
			size, sized := record.Value("B/op")
			if !counted || !sized {
				return fmt.Errorf("reading benchmarks: %s: %s has no allocations", file, record.Name)
			}
			name := record.GetConfig("pkg") + " " + record.Name.String()
			if known, ok := c[name]; ok {
				allocations, size = min(known.allocations, allocations), min(known.bytes, size)
			}
			c[name] = cost{allocations, size}
		case *benchfmt.SyntaxError:
			return fmt.Errorf("reading benchmarks: %w", record)
		}
	}
	if err := reader.Err(); err != nil {
		return fmt.Errorf("reading benchmarks: %w", err)
	}
	return nil
}

// text returns a baseline: the format of 'go test', without times, which depend on the
// machine.
func (c costs) text() []byte {
	out := bytes.NewBufferString(header)
	last := ""
	for _, name := range slices.Sorted(maps.Keys(c)) {
		pkg, benchmark, _ := strings.Cut(name, " ")
		if pkg != last {
			last = pkg
			fmt.Fprintf(out, "\npkg: %s\n", pkg)
		}
		fmt.Fprintf(out, "Benchmark%-36s 1 %8.0f B/op %6.0f allocs/op\n", benchmark, c[name].bytes, c[name].allocations)
	}
	return out.Bytes()
}

// Results of a comparison.
const (
	same    = "same"
	better  = "better"
	worse   = "WORSE"
	missing = "MISSING"
	added   = "NEW"
)

// compare returns worse if either quantity is worse, whatever the other one gained.
func compare(before, now cost) string {
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

// report writes the benchmarks that differ, and what to do. It returns the number of
// benchmarks that fail. One without a baseline fails, too: it would not be guarded.
func report(w io.Writer, before, now costs) (failed int) {
	all := maps.Clone(before)
	maps.Copy(all, now)
	count := map[string]int{}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, known := before[name]
		is, measured := now[name]
		result := compare(was, is)
		switch {
		case !measured:
			result, is = missing, unknown
		case !known:
			result, was = added, unknown
		}
		if count[result]++; result != same {
			pkg, benchmark, _ := strings.Cut(name, " ")
			line := fmt.Sprintf("%s\t%s %s\tallocations %.0f → %.0f\tbytes %.0f → %.0f\n",
				result, path.Base(pkg), benchmark, was.allocations, is.allocations, was.bytes, is.bytes)
			fmt.Fprint(table, strings.ReplaceAll(line, "NaN", "?"))
		}
	}
	table.Flush()
	fmt.Fprintf(w, "%d benchmarks: %d as in the baseline, %d better, %d worse, %d missing, %d new\n",
		len(all), count[same], count[better], count[worse], count[missing], count[added])
	failed = count[worse] + count[missing] + count[added]
	switch {
	case failed > 0:
		fmt.Fprint(w, advice)
	case count[better] > 0:
		fmt.Fprintln(w, "Run 'make bench-baseline' and commit the result, so that the improvement is kept.")
	}
	return failed
}

const advice = `Find the allocations: go test -run '^$' -bench NAME -memprofile mem.out PACKAGE, then
go tool pprof -sample_index=alloc_objects mem.out. If they are needed, or if benchmarks were
added or removed, run 'make bench-baseline', and give the reason in the commit message.
`
