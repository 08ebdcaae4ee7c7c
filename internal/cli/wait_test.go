// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
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
