// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"strings"
	"sync/atomic"
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

// If the nodes can no longer be read at the end of the timeout, it is unknown whether they are open.
// A failure after which they could be read again does not count.
func TestWaitLosesTheAPIServer(t *testing.T) {
	for name, c := range map[string]struct {
		// fails specifies whether the nth request for the nodes fails.
		fails   func(n int64) bool
		timeout string
		code    int
		want    string
	}{
		"at the end":         {func(n int64) bool { return n > 1 }, "1s", exitError, "error: timed out after 1s, and the nodes can no longer be read: the server is down; last known state: 0 of 1 nodes are open; waiting for n1 (agent)\n"},
		"from the start":     {func(int64) bool { return true }, "1s", exitError, "error: the server is down\n"},
		"and finds it again": {func(n int64) bool { return n == 1 }, "4s", exitNo, "timed out after 4s: 0 of 1 nodes are open; waiting for n1 (agent)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			server := newAPIServer(t, smallCluster())
			var requests atomic.Int64
			server.refuse = func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != nodesPath {
					return false
				}
				switch watched := r.URL.Query().Get("watch") != ""; {
				case r.URL.Query().Get("sendInitialEvents") != "":
					refusal(w, http.StatusUnprocessableEntity, "Invalid", "streaming lists are not supported")
				case c.fails(requests.Add(1)):
					refusal(w, http.StatusServiceUnavailable, "ServiceUnavailable", "the server is down")
				case watched:
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusOK)
					_ = http.NewResponseController(w).Flush() // fails only if the client is gone
					<-r.Context().Done()
				default:
					return false
				}
				return true
			}
			if code, out, err := server.run(t, "wait", "n1", "--timeout="+c.timeout); code != c.code || err != c.want {
				t.Errorf("exit status %d, want %d with %q:\n%s%q", code, c.code, c.want, out, err)
			}
		})
	}
}

// A node that carries the gate's taint without a record does not count as open: the gate is about to
// adopt it as closed.
func TestWaitForATaintedNodeWithoutARecord(t *testing.T) {
	before, spec, _ := strings.Cut(heldNode, "  annotations:")
	_, spec, _ = strings.Cut(spec, "spec:")
	for spec, want := range map[string]int{spec: exitNo, strings.Replace(spec, "example.com/a", "example.com/b", 1): exitYes} {
		objects := smallCluster()
		objects[nodesPath] = list("v1", "NodeList", strings.Replace(before, "2026", "2025", 1)+"spec:"+spec)
		for _, timeout := range []string{"0", "1s"} {
			server := newAPIServer(t, objects)
			if code, out, err := server.run(t, "wait", "n1", "--timeout", timeout); code != want || code == exitNo && !strings.Contains(err, "waiting for n1 (agent)") {
				t.Errorf("with --timeout=%s: exit status %d, want %d:\n%s%s%s", timeout, code, want, out, err, spec)
			}
		}
	}
}
