// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The clock of the user's machine may be wrong by any time: the API server's counts.
func TestClockOfTheMachine(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"it is right": 0, "it is behind": 3 * time.Hour, "it is ahead": -3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			now := time.Now().Add(ahead) // by the API server
			at := func(ago time.Duration) string { return now.Add(-ago).UTC().Format(time.RFC3339) }
			node := strings.NewReplacer("2026-03-01T01:00:00Z", at(5*time.Minute), "2126-03-01T01:00:00Z", at(-time.Hour)).Replace(heldNode)
			objects := smallCluster()
			objects[nodesPath+"/n1"], objects[nodesPath] = node, list("v1", "NodeList", node)
			objects["/apis/coordination.k8s.io/v1/namespaces/nodegate-system/leases/nodegate"] = fmt.Sprintf(
				"apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: nodegate}\nspec: {holderIdentity: a, leaseDurationSeconds: 2, renewTime: %q}\n",
				now.UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
			server := newAPIServer(t, objects)
			server.refuse = func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Date", time.Now().Add(ahead).UTC().Format(http.TimeFormat))
				return false
			}
			for args, want := range map[string]string{
				"why n1":      "  blocked   a manual override keeps the gate closed on the node until " + at(-time.Hour),
				"timeline n1": "was created " + at(5*time.Minute) + ", 5m",
				"status":      "The controller is running: a renewed its lease ",
			} {
				if _, out, err := server.run(t, strings.Fields(args)...); !strings.Contains(out, want) {
					t.Errorf("%s: want %q:\n%s%s", args, want, out, err)
				}
			}
			_, out, err := server.run(t, strings.Fields("open n1 --gate agent --for 1h --reason x --dry-run=client -o json")...)
			var result OverrideResult
			if json.Unmarshal([]byte(out), &result) != nil || len(result.Nodes) != 1 || result.Nodes[0].Until.Sub(now.Add(time.Hour)).Abs() > time.Minute {
				t.Errorf("the override does not end in an hour, %s:\n%s%s", at(-time.Hour), out, err)
			}
		})
	}
}
