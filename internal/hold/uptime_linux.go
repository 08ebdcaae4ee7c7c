// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"time"

	"golang.org/x/sys/unix"
)

// Uptime returns the time since the boot. Unlike the time of day, it is not corrected while a
// machine boots.
func Uptime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // it fails only for an unknown clock
	return time.Duration(t.Nano())
}
