// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/nodegate/nodegate/bench/report"
)

const (
	decisionPackage = "github.com/nodegate/nodegate/internal/controller"
	// decisionBenchmark selects the benchmarks of a changed condition that decide the gates
	// that read it, and all gates.
	decisionBenchmark = "^BenchmarkFlip$/^condition$/^decision"
	decisionCount     = 5000 // operations per value
	decisionNodes     = 5000 // in the benchmarks
)

// decisionRows runs Go benchmarks from this source tree a number of times, and returns
// their rows.
func decisionRows(ctx context.Context, times int) ([]report.Row, error) {
	command := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", decisionBenchmark,
		"-benchtime", fmt.Sprintf("%dx", decisionCount), "-count", strconv.Itoa(times), decisionPackage)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("running %s: %w: %s%s", decisionBenchmark, err, stderr.Bytes(), output)
	}
	return parseDecisions(output)
}

// parseDecisions parses the output of 'go test -bench': lines of a name, a count, and
// values with their units.
func parseDecisions(output []byte) ([]report.Row, error) {
	values := report.Sample{}
	for lines := bufio.NewScanner(bytes.NewReader(output)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "BenchmarkFlip/condition/decision") {
			continue
		}
		which := "part "
		if strings.Contains(fields[0], "everything") {
			which = "all "
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("parsing %q: %w", lines.Text(), err)
			}
			if fields[i+1] == "ns/op" {
				value /= 1000
			}
			values.Add(which+fields[i+1], value)
		}
	}
	rows := []report.Row{
		report.Alone("decision", "µs", report.AtMost(decisionGoal), values["part ns/op"]...),
		report.Count("gates evaluated for it", report.AtMost(1), values["part signals/op"]...),
		report.Alone("decision if every gate is evaluated", "µs", nil, values["all ns/op"]...),
		report.Count("gates evaluated for that", nil, values["all signals/op"]...),
	}
	for _, row := range rows {
		if row.Nodegate == nil {
			return nil, fmt.Errorf("parsing the output of %s: there are no values for %q", decisionBenchmark, row.What)
		}
	}
	return rows, nil
}
