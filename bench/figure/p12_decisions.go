// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"

	"github.com/nodegate/nodegate/bench/report"
)

const (
	decisionPackage = "github.com/nodegate/nodegate/internal/controller"
	// decisionBenchmark are those of a condition that flips: one that decides about
	// what looks at it, and one that decides about everything.
	decisionBenchmark = "^BenchmarkFlip$/^condition$/^decision"
	decisionCount     = 5000 // for each value
)

// decisions are what Go benchmarks say of a decision: one value for each time that
// they ran.
type decisions struct {
	nodes int
	// narrow is of what looks at that which has changed, whole of everything, in µs.
	narrow, whole []float64
	// narrowSignals and wholeSignals are how many signals were looked at.
	narrowSignals, wholeSignals []float64
}

func (d *decisions) rows() []report.Row {
	return []report.Row{
		report.Alone("decision", "µs", d.narrow, report.AtMost(decisionGoal)),
		report.Alone("gates evaluated for it", "", d.narrowSignals, report.AtMost(1)),
		report.Alone("decision if every gate is evaluated", "µs", d.whole, nil),
		report.Alone("gates evaluated for that", "", d.wholeSignals, nil),
	}
}

// benchmarkDecisions runs the Go benchmarks from this source tree.
func benchmarkDecisions(ctx context.Context, times int) (*decisions, error) {
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

// parseDecisions reads what 'go test -bench' writes: lines of a name, a count, and
// values each followed by its unit.
func parseDecisions(output []byte) (*decisions, error) {
	d := &decisions{nodes: 5000}
	for lines := bufio.NewScanner(bytes.NewReader(output)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "BenchmarkFlip/condition/decision") {
			continue
		}
		values := map[string]float64{}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("reading %q: %w", lines.Text(), err)
			}
			values[fields[i+1]] = value
		}
		time, signals := &d.narrow, &d.narrowSignals
		if strings.Contains(fields[0], "everything") {
			time, signals = &d.whole, &d.wholeSignals
		}
		*time, *signals = append(*time, values["ns/op"]/1000), append(*signals, values["signals/op"])
	}
	if len(d.narrow) == 0 || len(d.whole) == 0 || d.narrowSignals[0] == 0 {
		return nil, errors.New("reading benchmarks: they do not tell of decisions and signals")
	}
	return d, nil
}
