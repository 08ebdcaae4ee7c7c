// SPDX-License-Identifier: Apache-2.0

package nodequeue

import "sync/atomic"

// Worker is the progress of one worker.
type Worker struct {
	// steps is odd while the worker processes a node.
	steps atomic.Uint64
	node  atomic.Value
	// lastSteps is the value of steps at the last check, and unchanged the number of
	// checks in a row that found the same odd value.
	lastSteps uint64
	unchanged int
}

// Start must be called when the worker begins to process a node.
func (w *Worker) Start(node string) {
	w.node.Store(node)
	w.steps.Add(1)
}

// Finish must be called when the worker has processed the node.
func (w *Worker) Finish() { w.steps.Add(1) }

// Check returns how many checks in a row, including this one, have found the worker at the same node as
// the check before, and the node. It must not be called concurrently.
func (w *Worker) Check() (unchanged int, node any) {
	steps := w.steps.Load()
	if steps%2 == 0 || steps != w.lastSteps {
		w.lastSteps, w.unchanged = steps, 0
		return 0, nil
	}
	w.unchanged++
	return w.unchanged, w.node.Load()
}
