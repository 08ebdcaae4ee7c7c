// SPDX-License-Identifier: Apache-2.0

// Package version contains the version of the running program.
package version

import "runtime/debug"

// Get returns the version of the main module from the build information.
func Get() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(unknown version)"
	}
	return info.Main.Version
}
