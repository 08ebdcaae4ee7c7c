// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// header is what the baseline begins with. Lines without a benchmark or a colon
// mean nothing in the format.
const header = `# What the guarded benchmarks allocate, for one operation each.
# 'make bench-compare' checks it, 'make bench-baseline' writes it anew.
`

// A benchmark is named by its package and its name, without the number of
// processors.
type benchmark struct{ pkg, name string }

// A cost is what one operation allocates.
type cost struct{ allocations, bytes float64 }

// costs are those of several benchmarks.
type costs map[benchmark]cost

// parse reads what 'go test -bench -benchmem' writes, or a baseline.
func parse(r io.Reader, file string) (costs, error) {
	all := costs{}
	reader := benchfmt.NewReader(r, file)
	for reader.Scan() {
		switch record := reader.Result().(type) {
		case *benchfmt.Result:
			allocations, counted := record.Value("allocs/op")
			size, sized := record.Value("B/op")
			if !counted || !sized {
				return nil, fmt.Errorf("%s: %s does not tell what it allocates", file, record.Name)
			}
			all[benchmark{record.GetConfig("pkg"), plainName(record.Name)}] = cost{allocations, size}
		case *benchfmt.SyntaxError:
			return nil, fmt.Errorf("reading benchmarks: %w", record)
		}
	}
	if err := reader.Err(); err != nil {
		return nil, fmt.Errorf("reading benchmarks: %w", err)
	}
	return all, nil
}

// atMost lowers costs to what others were, where these were lower, and adds those that
// are missing.
func (c costs) atMost(others costs) {
	for b, other := range others {
		if known, ok := c[b]; ok {
			other = cost{min(known.allocations, other.allocations), min(known.bytes, other.bytes)}
		}
		c[b] = other
	}
}

// plainName leaves the number of processors out.
func plainName(name benchfmt.Name) string {
	base, parts := name.Parts()
	var plain strings.Builder
	plain.Write(base)
	for _, part := range parts {
		if part[0] == '/' {
			plain.Write(part)
		}
	}
	return plain.String()
}

// readBaseline returns an empty baseline where there is none.
func readBaseline(path string) (costs, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return costs{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the baseline: %w", err)
	}
	return parse(bytes.NewReader(raw), path)
}

// write writes costs in the format of 'go test', without times, which depend on
// the machine.
func (c costs) write(w io.Writer) error {
	var out bytes.Buffer
	out.WriteString(header)
	pkg := ""
	for _, b := range c.sorted() {
		if b.pkg != pkg {
			pkg = b.pkg
			fmt.Fprintf(&out, "\npkg: %s\n", pkg)
		}
		fmt.Fprintf(&out, "Benchmark%-36s 1 %8.0f B/op %6.0f allocs/op\n", b.name, c[b].bytes, c[b].allocations)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// sorted returns the benchmarks by package and name.
func (c costs) sorted() []benchmark {
	all := make([]benchmark, 0, len(c))
	for b := range c {
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b benchmark) int {
		return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name))
	})
	return all
}
