// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package meter

import (
	"errors"
	"time"
)

// CPU returns an error: CPU times of other processes are known only on Linux.
func CPU(...int) (time.Duration, error) {
	return 0, errors.New("reading CPU time: only possible on Linux")
}
