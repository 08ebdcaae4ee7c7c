// SPDX-License-Identifier: Apache-2.0

package meter

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Events of all threads are counted once, as the example of their time, which all kernels can
// count. Other than the process's CPU time, it includes the time that the machine's host has taken.
func TestCountEvents(t *testing.T) {
	const busy = 4 // threads
	begin := time.Now()
	counter, err := countEvents(unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_TASK_CLOCK, []int{os.Getpid()})
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		if _, ok := CountInstructions(os.Getpid()); ok {
			t.Errorf("instructions are counted, although the kernel does not permit it: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	before, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	var threads sync.WaitGroup
	for range busy {
		threads.Go(func() {
			for began := time.Now(); time.Since(began) < 20*tick; {
			}
		})
	}
	threads.Wait()
	counted, err := counter.Count()
	if err != nil {
		t.Fatal(err)
	}
	after, err := CPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	used, most := after-before, time.Since(begin)*time.Duration(min(runtime.NumCPU(), busy+1))
	if time.Duration(counted) < used-5*tick || time.Duration(counted) > most+5*tick {
		t.Errorf("%s are counted, want from %s, which the process used, to %s", time.Duration(counted), used, most)
	}
	if err := counter.Close(); err != nil {
		t.Error(err)
	}
	if _, err := countEvents(unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_TASK_CLOCK, []int{0}); err == nil {
		t.Error("there are threads of a process that does not exist")
	}
}

// Instructions are counted, or it is known that they cannot be.
func TestCountInstructions(t *testing.T) {
	counter, ok := CountInstructions(os.Getpid())
	if !ok {
		if _, err := countEvents(unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_INSTRUCTIONS, []int{os.Getpid()}); err == nil || counter != nil {
			t.Errorf("instructions are not counted (%v), although the kernel permits it: %v", counter, err)
		}
		return
	}
	if count, err := counter.Count(); err != nil || count <= 0 {
		t.Errorf("%v instructions, %v", count, err)
	}
	if err := counter.Close(); err != nil {
		t.Error(err)
	}
}
