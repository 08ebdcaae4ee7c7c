// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/nodegate/nodegate/bench/report"
)

// fleets lists the fleet sizes of the page's predictions, in nodes. Larger fleets are
// measured by 'make bench-scale'.
var fleets = []int{1000, 5000, 15000, 50000}

// An estimate is a quantity as a function of the fleet's size. It is NaN if the
// run has not measured a quantity that it is based on.
type estimate struct {
	// gates are the gates, and the pods per node that they wait for, of the fleet that was
	// measured.
	what, gates, unit, how string
	at                     func(nodes float64) float64
}

// expectedText returns the predictions for fleets of other sizes, and how they are
// computed.
func expectedText(r *report.Report) string {
	var out strings.Builder
	out.WriteString("| | gates, pods per node ")
	for _, n := range fleets {
		fmt.Fprintf(&out, "| %s nodes ", thousands(n))
	}
	fmt.Fprintf(&out, "| calculation |\n| --- | ---%s | --- |\n", strings.Repeat(" | ---", len(fleets)))
	for _, e := range estimates(r) {
		fmt.Fprintf(&out, "| %s | %s ", e.what, e.gates)
		for _, n := range fleets {
			fmt.Fprintf(&out, "| %s ", amount(e.at(float64(n)), e.unit))
		}
		fmt.Fprintf(&out, "| %s |\n", e.how)
	}
	return out.String()
}

// amount formats a number with two significant digits, because the estimates are
// not more precise.
func amount(value float64, unit string) string {
	if math.IsNaN(value) {
		return "not measured"
	}
	if value == 0 {
		return strings.TrimSpace("0 " + unit)
	}
	digits := 1 - int(math.Floor(math.Log10(math.Abs(value))))
	rounded := math.Round(value*math.Pow10(digits)) / math.Pow10(digits)
	digits = 1 - int(math.Floor(math.Log10(math.Abs(rounded)))) // it may have become a power of ten
	return strings.TrimSpace(fmt.Sprintf("%.*f %s", max(0, digits), rounded, unit))
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// measured returns nodegate's median of a quantity, or NaN.
func measured(r *report.Report, q quantity) float64 {
	if row := find(r, q); row != nil {
		return row.Nodegate.Median
	}
	return math.NaN()
}

// find returns the row of a quantity that was measured, or nil.
func find(r *report.Report, q quantity) *report.Row {
	for _, result := range r.Results {
		i := slices.IndexFunc(result.Rows, func(row report.Row) bool { return row.What == q.row })
		if result.ID == q.figure && i >= 0 && result.Rows[i].Nodegate != nil {
			return &result.Rows[i]
		}
	}
	return nil
}

// line returns the straight line through two points.
func line(x1, y1, x2, y2 float64) func(float64) float64 {
	slope := (y2 - y1) / (x2 - x1)
	return func(x float64) float64 { return y1 + (x-x1)*slope }
}
