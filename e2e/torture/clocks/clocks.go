// SPDX-License-Identifier: Apache-2.0

// Package clocks builds Go programs whose monotonic clock runs at another rate. Timers and
// measured durations are too slow or too fast, while the wall clock stays correct, as on
// a machine with an inaccurate oscillator whose time is synchronized.
package clocks

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// RateVariable is the environment variable with the rate of a program that Build has
// built, in milliseconds per second.
const RateVariable = "NODEGATE_CLOCK_MILLISECONDS"

// nanotime is what Go's runtime measures time with, and scaled what takes its place. For
// linux/amd64, the only platform that Build supports, time.now is written in assembly,
// and measures time by itself; inGo does not.
const (
	nanotime = `func nanotime() int64 {
	return nanotime1()
}`
	scaled = `func nanotime() int64 {
	now := nanotime1()
	if clockRate == 0 {
		return now
	}
	return clockStart + (now-clockStart)/1000*clockRate
}

// clockRate is how many milliseconds the clock goes in a second since clockStart.
var clockRate, clockStart int64

//go:linkname setClockRate
func setClockRate(rate int64) {
	clockStart, clockRate = nanotime1(), rate
}`
	inGo = `package runtime

import (
	"internal/runtime/syscall/linux"
	"unsafe"
)

//go:linkname time_now time.now
func time_now() (sec int64, nsec int32, mono int64) {
	const clockGettime, realtime = 228, 0
	var ts timespec
	linux.Syscall6(clockGettime, realtime, uintptr(noescape(unsafe.Pointer(&ts))), 0, 0, 0, 0)
	return ts.tv_sec, int32(ts.tv_nsec), nanotime()
}
`
)

// setter is a file of the program, which sets the rate before main.
//
//go:embed setter.go.txt
var setter []byte

// Supported returns the reason why Build cannot build programs on this platform, or nil.
func Supported() error {
	if platform := runtime.GOOS + "/" + runtime.GOARCH; platform != "linux/amd64" {
		return fmt.Errorf("clocks run at another rate only on linux/amd64, not on %s", platform)
	}
	return nil
}

// Build builds the package in a directory into a program. The directory of the program
// must be empty.
func Build(ctx context.Context, source, program string) error {
	if err := Supported(); err != nil {
		return err
	}
	output, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("finding Go: %w", err)
	}
	library := filepath.Join(strings.TrimSpace(string(output)), "src", "runtime")
	before, err := os.ReadFile(filepath.Join(library, "time_nofake.go"))
	if err != nil {
		return fmt.Errorf("reading Go's runtime: %w", err)
	}
	after := bytes.Replace(before, []byte(nanotime), []byte(scaled), 1)
	if bytes.Equal(before, after) {
		return fmt.Errorf("this version of Go measures time differently: see %s", library)
	}
	overlay, err := write(filepath.Dir(program), map[string][]byte{
		filepath.Join(library, "time_nofake.go"):      after,
		filepath.Join(library, "timeasm.go"):          []byte(inGo),
		filepath.Join(library, "time_linux_amd64.s"):  nil,
		filepath.Join(source, "zz_clock_rate.go"):     setter,
		filepath.Join(source, "zz_clock_rate_stub.s"): nil, // required for a function without a body
	})
	if err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", program, ".")
	build.Dir = source
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building a program with another clock: %w:\n%s", err, output)
	}
	return nil
}

// write writes replacements of files, and the overlay file for the go command.
func write(dir string, files map[string][]byte) (overlay string, err error) {
	replaces := make(map[string]string)
	for original, content := range files {
		replaces[original] = filepath.Join(dir, "overlay-"+filepath.Base(original))
		if err := os.WriteFile(replaces[original], content, 0o600); err != nil {
			return "", fmt.Errorf("writing an overlay: %w", err)
		}
	}
	overlay = filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replaces})
	if err == nil {
		err = os.WriteFile(overlay, text, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("writing an overlay: %w", err)
	}
	return overlay, nil
}

// AtRate writes a script that runs a program, which Build has built, at a rate.
func AtRate(program string, rate float64) (string, error) {
	name := fmt.Sprintf("%s-%g", program, rate)
	script := fmt.Sprintf("#!/bin/sh\n%s=%d exec %q \"$@\"\n", RateVariable, int64(rate*1000), program)
	if err := os.WriteFile(name, []byte(script), 0o700); err != nil { //nolint:gosec // it is a program
		return "", fmt.Errorf("writing a program: %w", err)
	}
	return name, nil
}
