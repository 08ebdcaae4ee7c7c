// SPDX-License-Identifier: Apache-2.0

package figure

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/nodegate/nodegate/bench/meter"
	"github.com/nodegate/nodegate/bench/report"
	"github.com/nodegate/nodegate/internal/testbed"
)

//go:embed p05_objects.yaml
var herdObjects []byte

// memories are what of nodegate's process was in memory, in MiB, one value for
// each start.
type memories struct {
	peak []float64
	// anonymous and files are what was resident in the end: what the process has
	// made itself, and its program.
	anonymous, files []float64
	// heap is what of its heap was in use.
	heap []float64
	// asked says what a stand-in was asked.
	asked string
}

const mebibyte = 1 << 20

func (m *memories) read(ctx context.Context, controller *testbed.Controller) error {
	memory, err := meter.MemoryOf(controller.PID())
	if err != nil {
		return err
	}
	metrics, err := meter.Of(ctx, controller.Metrics)
	if err != nil {
		return err
	}
	m.peak = append(m.peak, float64(memory.Peak)/mebibyte)
	m.anonymous = append(m.anonymous, float64(memory.Anonymous)/mebibyte)
	m.files = append(m.files, float64(memory.Resident-memory.Anonymous)/mebibyte)
	m.heap = append(m.heap, metrics.Sum("go_memstats_heap_inuse_bytes", nil)/mebibyte)
	return nil
}

func (m *memories) rows(size Herd) []report.Row {
	var goal *report.Goal
	if size.AtMost > 0 {
		goal = report.AtMost(size.AtMost)
	}
	what := fmt.Sprintf("peak, %d nodes, %d gate pods", size.Nodes, size.Nodes*len(herdDaemons))
	if size.Others > 0 {
		what += fmt.Sprintf(", %d other pods", size.Others)
	}
	return []report.Row{report.Alone(what, "MiB", m.peak, goal)}
}

// note says what the memory consists of.
func (m *memories) note() string {
	return fmt.Sprintf("Resident in the end: %s MiB of its own, %s MiB of its program's file; heap in use %s MiB.",
		report.SpreadOf(m.anonymous), report.SpreadOf(m.files), report.SpreadOf(m.heap))
}
