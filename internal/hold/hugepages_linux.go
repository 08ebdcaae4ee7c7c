// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// startedAgain is the environment variable of a program that WithoutHugePages has started again.
const startedAgain = "NODEGATE_WITHOUT_HUGE_PAGES"

// WithoutHugePages starts the program again without transparent huge pages, once, unless it
// runs without them. Where they are enabled for all programs, the kernel gives a program two
// megabytes wherever it uses a few kilobytes. They are disabled before the program starts,
// because the runtime uses memory before main. The program continues as it is if the kernel
// refuses.
func WithoutHugePages() {
	if os.Getenv(startedAgain) != "" || hugePagesDisabled() || unix.Prctl(unix.PR_SET_THP_DISABLE, 1, 0, 0, 0) != nil || !hugePagesDisabled() {
		return
	}
	if program, err := os.Executable(); err == nil {
		_ = syscall.Exec(program, os.Args, append(os.Environ(), startedAgain+"=1")) // it returns only if it fails
	}
}

// hugePagesDisabled reports whether this process, and what it executes, has no transparent huge
// pages.
func hugePagesDisabled() bool {
	disabled, err := unix.PrctlRetInt(unix.PR_GET_THP_DISABLE, 0, 0, 0, 0)
	return err == nil && disabled != 0
}
