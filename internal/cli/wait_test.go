// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
	"time"
)

// A gate from a file is known only from records. While no node exists, wait waits for the node.
func TestWaitForAFileGate(t *testing.T) {
	for _, served := range []bool{true, false} {
		objects := smallCluster()
		if objects[nodesPath] = list("v1", "NodeList"); !served {
			delete(objects, gatesPath)
		}
		for _, nodes := range []string{"n1", "--all"} {
			code, out, err := newAPIServer(t, objects).run(t, "wait", nodes, "--gate=f", "--timeout=0")
			if code != exitNo || !strings.HasPrefix(err, "timed out after 0s") {
				t.Errorf("%s: exit status %d:\n%s%s", nodes, code, out, err)
			}
		}
	}
}

// A gate from a file need not have a record on the nodes that exist, as long as others are
// missing.
func TestWaitForAFileGateOnAFurtherNode(t *testing.T) {
	for _, served := range []bool{true, false} {
		objects := fileGate(served)
		objects[nodesPath] = list("v1", "NodeList", strings.ReplaceAll(heldNode, "gate.nodegate.dev/agent", "example.com/other"))
		a := newAPIServer(t, objects)
		if code, out, err := a.run(t, "wait", "n1", "n3", "--gate=f", "--timeout=0"); code != exitNo || !strings.Contains(err, "n3 (does not exist)") {
			t.Errorf("exit status %d:\n%s%s", code, out, err)
		}
		if code, out, err := a.run(t, "wait", "n1", "--gate=f", "--timeout=0"); code != exitError {
			t.Errorf("all nodes exist: exit status %d:\n%s%s", code, out, err)
		}
	}
}

// A negative timeout waits for a week, which the message at the end states.
func TestWaitLimit(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{-1: 7 * 24 * time.Hour, 0: 0, time.Minute: time.Minute} {
		if got := (&waitFlags{timeout: timeout}).limit(); got != want {
			t.Errorf("--timeout=%s waits for %s, want %s", timeout, got, want)
		}
	}
}
