// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

// Names are completed in every form that the verb accepts.
func TestCompletion(t *testing.T) {
	objects := smallCluster()
	objects[nodesPath] = list("v1", "NodeList", heldNode, strings.ReplaceAll(heldNode, "n1", "n2"))
	a := newAPIServer(t, objects)
	for args, want := range map[string]string{
		"why ":                           "n1 n2",
		"why node/":                      "node/n1 node/n2",
		"why no/n2":                      "no/n2",
		"why no":                         "",
		"why pod/":                       "",
		"why x/n":                        "",
		"open node/n1 node/":             "node/n2",
		"open n1 node/":                  "node/n2",
		"status ng/":                     "ng/agent",
		"status nodegate.nodegate.dev/a": "nodegate.nodegate.dev/agent",
		"open n1 --gate ":                "agent",
		"open n1 --gate ng/":             "",
	} {
		_, out, _ := run(t, append([]string{"__complete", "--server", a.URL}, strings.Split(args, " ")...)...)
		names, _, _ := strings.Cut(out, ":")
		if got := strings.Join(strings.Fields(names), " "); got != want {
			t.Errorf("%q: completed to %q, want %q", args, got, want)
		}
	}
}
