// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nodegate/nodegate/bench/report"
)

// The names of rows that depend on the size of the fleet, and of those that compare two sizes
// and follow them.
var (
	ofSize  = regexp.MustCompile(`^(.+), (\d+) nodes$`)
	growing = regexp.MustCompile(`^.+, (\d+) nodes by (\d+)$`)
)

// editCost begins the names of the rows about the CPU time that a resync also takes, in µs per
// node.
const editCost = "CPU for an edited gate, per node"

// resyncInterval is the time between two resyncs, in seconds.
const resyncInterval = 600

// A slope is a quantity of fleets of several sizes.
type slope struct {
	what, growth string
	at           map[int]string
}

// slopesText returns a table with one column per size of the fleet.
func slopesText(r *report.Report) string {
	i := slices.IndexFunc(r.Results, func(result report.Result) bool { return result.ID == "P14" })
	if i < 0 {
		return notMeasured
	}
	sizes, slopes := slopesOf(r.Results[i].Rows)
	var out strings.Builder
	out.WriteString("| ")
	for _, n := range sizes {
		fmt.Fprintf(&out, "| %s nodes ", thousands(n))
	}
	fmt.Fprintf(&out, "| growth |\n| ---%s | --- |\n", strings.Repeat(" | ---", len(sizes)))
	for _, s := range slopes {
		fmt.Fprintf(&out, "| %s ", s.what)
		for _, n := range sizes {
			fmt.Fprintf(&out, "| %s ", s.at[n])
		}
		fmt.Fprintf(&out, "| %s |\n", s.growth)
	}
	return out.String()
}

// slopesOf returns the sizes of the fleets, in the order of the rows, and a slope for each
// quantity.
func slopesOf(rows []report.Row) (sizes []int, slopes []*slope) {
	to := func(what string) *slope {
		if len(slopes) == 0 || slopes[len(slopes)-1].what != what {
			slopes = append(slopes, &slope{what: what, at: map[int]string{}})
		}
		return slopes[len(slopes)-1]
	}
	resync := &slope{what: "CPU for the resync every ten minutes: that of an edited gate", at: map[int]string{}}
	for _, row := range rows {
		if by := growing.FindStringSubmatch(row.What); by != nil && len(slopes) > 0 {
			slopes[len(slopes)-1].growth = row.Nodegate.String()
			continue
		}
		of := ofSize.FindStringSubmatch(row.What)
		if of == nil || row.Nodegate == nil {
			continue
		}
		n, err := strconv.Atoi(of[2])
		if err != nil {
			continue // the pattern permits only digits
		}
		if !slices.Contains(sizes, n) {
			sizes = append(sizes, n)
		}
		to(of[1]).at[n] = strings.TrimSpace(row.Nodegate.String() + " " + row.Unit)
		if of[1] == editCost {
			resync.at[n] = amount(100*row.Nodegate.Median*1e-6*float64(n)/resyncInterval, "% of a core")
		}
	}
	if len(resync.at) > 0 {
		slopes = append(slopes, resync)
	}
	return sizes, slopes
}
