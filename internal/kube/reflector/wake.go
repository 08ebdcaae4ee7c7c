// SPDX-License-Identifier: Apache-2.0

package reflector

// Wake is a signal that wakes a goroutine. Signals sent before the goroutine wakes are
// merged.
type Wake chan struct{}

// NewWake returns a Wake.
func NewWake() Wake { return make(Wake, 1) }

// Send wakes the goroutine. It never blocks.
func (w Wake) Send() {
	select {
	case w <- struct{}{}:
	default:
	}
}
