// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Instructions counts the instructions that processes execute in user mode. They depend on
// neither the machine's speed nor its load. The kernel counts them, if it permits that and
// the CPU can; virtual CPUs often cannot.
type Instructions struct {
	events []int // file descriptors
}

// CountInstructions starts to count the instructions of processes. It reports false if
// they cannot be counted.
func CountInstructions(pids ...int) (*Instructions, bool) {
	counter, err := countEvents(unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS, pids)
	return counter, err == nil
}

// countEvents counts events of the threads that processes have, and of those that these
// threads start.
func countEvents(kind uint32, event uint64, pids []int) (*Instructions, error) {
	attributes := unix.PerfEventAttr{
		Type: kind, Config: event, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Bits: unix.PerfBitInherit | unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
	}
	c := &Instructions{}
	for _, pid := range pids {
		threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("listing threads: %w", err), c.Close())
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				return nil, errors.Join(fmt.Errorf("listing threads: %w", err), c.Close())
			}
			fd, err := unix.PerfEventOpen(&attributes, id, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
			if errors.Is(err, unix.ESRCH) {
				continue // it has ended
			}
			if err != nil {
				return nil, errors.Join(fmt.Errorf("counting events of thread %d: %w", id, err), c.Close())
			}
			c.events = append(c.events, fd)
		}
	}
	return c, nil
}

// Count returns the number of instructions since the start.
func (c *Instructions) Count() (float64, error) {
	var total uint64
	var value [8]byte
	for _, fd := range c.events {
		if _, err := unix.Read(fd, value[:]); err != nil {
			return 0, fmt.Errorf("reading an event counter: %w", err)
		}
		total += binary.NativeEndian.Uint64(value[:])
	}
	return float64(total), nil
}

// Close ends the counting.
func (c *Instructions) Close() error {
	var errs []error
	for _, fd := range c.events {
		errs = append(errs, unix.Close(fd))
	}
	c.events = nil
	return errors.Join(errs...)
}
