// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"net/http"
	"strings"
	"testing"
)

// patchFailures makes patches of two nodes fail, and counts them.
type patchFailures struct {
	*apiServer
	// conflicts is how many patches of n1 conflict, because another writer makes the
	// replacement in n1 meanwhile.
	conflicts   int
	replacement *strings.Replacer
	// denied specifies whether patches of n2 are denied.
	denied bool
	// patches counts the patches by path.
	patches map[string]int
}

// handle is a refuse function of an apiServer.
func (f *patchFailures) handle(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodPatch {
		return false
	}
	f.patches[r.URL.Path]++
	switch {
	case strings.HasSuffix(r.URL.Path, "/n1") && f.patches[r.URL.Path] <= f.conflicts:
		f.objects[r.URL.Path] = f.replacement.Replace(f.objects[r.URL.Path])
		refusal(w, http.StatusConflict, "Conflict", "the object has been modified")
		return true
	case strings.HasSuffix(r.URL.Path, "/n2") && f.denied:
		refusal(w, http.StatusForbidden, "Forbidden", "this is forbidden")
		return true
	}
	return false
}

// A change that conflicts with another writer is tried again on the same Node, not on a later Node
// of the same name. If a change fails, the output contains the nodes that are changed already.
func TestOverridesThatFail(t *testing.T) {
	touched, created := strings.NewReplacer(`resourceVersion: "1"`, `resourceVersion: "2"`), strings.NewReplacer("uid: uid", "uid: another")
	for name, c := range map[string]struct {
		failures  patchFailures
		code      int
		out, err  string
		patchesN1 int
		patchesN2 int
	}{
		"one conflict":                 {patchFailures{conflicts: 1, replacement: touched}, exitYes, "node/n1\nnode/n2\n", "", 2, 1},
		"endless conflicts":            {patchFailures{conflicts: 100, replacement: touched}, exitError, "", "0 of 2 nodes done: changing node n1: ", maxAttempts, 0},
		"another Node of the name":     {patchFailures{conflicts: 1, replacement: created}, exitError, "", "0 of 2 nodes done: node n1 was deleted and created again", 1, 0},
		"the second node is forbidden": {patchFailures{denied: true}, exitError, "node/n1\n", "1 of 2 nodes done: changing node n2: ", 1, 1},
	} {
		for _, args := range []string{"open n1 n2 --gate=agent --for=1h --reason=x", "close n1 n2 --gate=agent --for=1h --reason=x", "reset n1 n2 --gate=agent"} {
			t.Run(name+"/"+strings.Fields(args)[0], func(t *testing.T) {
				f := c.failures
				f.apiServer, f.patches = newAPIServer(t, smallCluster()), map[string]int{}
				f.objects[nodesPath+"/n2"] = strings.Replace(heldNode, "name: n1", "name: n2", 1)
				f.refuse = f.handle
				code, out, err := f.run(t, append(strings.Fields(args), "-o", "name")...)
				if code != c.code || out != c.out || !strings.Contains(err, c.err) {
					t.Errorf("exit status %d, want %d, with %q and the error %q:\n%s%s", code, c.code, c.out, c.err, out, err)
				}
				if n1, n2 := f.patches[nodesPath+"/n1"], f.patches[nodesPath+"/n2"]; n1 != c.patchesN1 || n2 != c.patchesN2 {
					t.Errorf("n1 was patched %d times, and n2 %d times; want %d and %d", n1, n2, c.patchesN1, c.patchesN2)
				}
			})
		}
	}
}
