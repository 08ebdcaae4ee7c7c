// SPDX-License-Identifier: Apache-2.0

package freeport

import (
	"net"
	"sync"
	"testing"
)

// Concurrent callers get different ports, although no process listens on them yet. All are
// outside the range of outgoing connections.
func TestChosenPortsAreDifferent(t *testing.T) {
	var mu sync.Mutex
	seen := map[int]bool{}
	var wait sync.WaitGroup
	for range 200 {
		wait.Go(func() {
			port, err := Choose(Loopback)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[port] || port < first || port >= first+count {
				t.Errorf("got port %d (%v) after %d others", port, err, len(seen))
			}
			seen[port] = true
		})
	}
	wait.Wait()
}

// A port with a listener is not chosen, on whichever address it listens.
func TestTakenPortsAreSkipped(t *testing.T) {
	for _, host := range []string{Loopback, ""} {
		address, err := Address()
		if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		taken := listener.Addr().(*net.TCPAddr).Port
		last.Add(^uint32(0)) // the taken port is the next
		if port, err := Choose(host); err != nil || port == taken {
			t.Errorf("on %q, got port %d (%v), which is taken", host, port, err)
		}
		if err := Check(host, taken); err == nil {
			t.Errorf("on %q, port %d is free, although a process listens on it", host, taken)
		}
	}
}
