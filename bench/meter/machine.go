// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// Load returns the machine's load averages over one, five and fifteen minutes.
func Load() string {
	content, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(content))
	if err != nil || len(fields) < 3 {
		return "unknown"
	}
	return strings.Join(fields[:3], " ")
}

// Machine returns a short description of the machine.
func Machine() string {
	return fmt.Sprintf("%s, %d CPUs", processor(), runtime.NumCPU())
}

// processor is what the machine calls its own.
func processor() string {
	content, _ := os.ReadFile("/proc/cpuinfo") // elsewhere than on Linux there is none
	for line := range strings.Lines(string(content)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return "unknown processor"
}
