// SPDX-License-Identifier: Apache-2.0

package gate

import "time"

// Earliest returns the earlier of two times. A zero time is ignored.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Latest returns the later of two times.
func Latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
