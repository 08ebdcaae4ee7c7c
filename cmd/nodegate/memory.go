// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/go-logr/logr"
)

// gcPercent is the value of GOGC. Go's default is 100. When all nodes are read at start, the
// amount of garbage is a hundred times that of the resulting facts, so this value determines
// peak memory. Measured with 5,000 nodes, 50 uses 9 MiB less memory than 100 and the same CPU
// time; 25 uses 3 MiB less than 50, and 40 % more CPU time.
const gcPercent = 50

// tuneMemory limits the memory of the process, unless the environment sets GOGC, GOMEMLIMIT
// or AUTOMEMLIMIT. The limit is nine tenths of the container's limit: near it, garbage is
// collected more often. The container's limit is read from the cgroup and not from the
// manifests, so that changes to it apply, such as those of a vertical autoscaler.
func tuneMemory(log logr.Logger) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if _, err := memlimit.Set(); err != nil {
		log.V(1).Info("the container's memory limit is unknown", "error", err.Error())
	}
}
