// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const leasePath = "/apis/coordination.k8s.io/v1/namespaces/nodegate-system/leases/nodegate"

// A controller that runs without leader election has no Lease. Whether one is running is then
// unknown, which status, open, close and reset say.
func TestWithoutLeaderElection(t *testing.T) {
	objects := smallCluster()
	objects[gatesPath] = list("nodegate.dev/v1alpha1", "NodeGateList", agentGate+`
status: {observedGeneration: 1, nodes: {selected: 7, open: 6, closed: 1}, conditions: [{type: Ready, status: "True", reason: Ready, message: m, lastTransitionTime: "2026-03-01T01:00:00Z"}]}`)
	server := newAPIServer(t, objects)
	code, out, err := server.run(t, "status")
	for _, want := range []string{
		"It is unknown whether a controller is running: there is no Lease nodegate in namespace nodegate-system", "7         6     1",
		"\nIf no controller is running, the status of these gates may be out of date: agent.\n",
	} {
		if code != exitError || !strings.Contains(out, want) {
			t.Errorf("exit status %d, want %d with %q:\n%s%s", code, exitError, want, out, err)
		}
	}
	for _, c := range []struct{ args, want string }{
		{"open n1 --gate agent --for 1h --reason ticket", "the override"},
		{"close n1 --gate agent --for 1h --reason ticket", "the override"},
		{"reset n1 --gate agent", "the change"},
	} {
		code, out, err = server.run(t, append(strings.Fields(c.args), "--dry-run=client")...)
		for _, want := range []string{
			"warning: node n1: it is unknown whether a controller is running: there is no Lease nodegate in namespace nodegate-system",
			"; if no controller is running, " + c.want + " takes effect when one runs\n",
		} {
			if code != exitYes || !strings.Contains(err, want) || strings.Contains(err, "no controller has run") {
				t.Errorf("%s: exit status %d, want %d with %q:\n%s%s", c.args, code, exitYes, want, out, err)
			}
		}
	}
	server.forbid(leasePath) // the permission to read the Lease is optional
	if code, out, err = server.run(t, "reset", "n1", "--gate", "agent", "--dry-run=client"); code != exitYes || err != "" {
		t.Errorf("exit status %d:\n%s%s", code, out, err)
	}
}

// The exit status is 0 only if everything was read that could be a problem.
func TestStatusExitStatus(t *testing.T) {
	const ready = `
status: {observedGeneration: 1, conditions: [{type: Ready, status: "%s", reason: X, message: m, lastTransitionTime: "2026-03-01T01:00:00Z"}]}`
	for name, c := range map[string]struct {
		status, refuse string
		want           int
		says           string
	}{
		"ready":                    {fmt.Sprintf(ready, "True"), "", exitYes, ""},
		"not ready":                {fmt.Sprintf(ready, "False"), "", exitNo, ""},
		"unknown":                  {fmt.Sprintf(ready, "Unknown"), "", exitError, errIncompleteStatus.Error()},
		"no status yet":            {"", "", exitError, errIncompleteStatus.Error()},
		"the Lease is forbidden":   {fmt.Sprintf(ready, "True"), leasePath, exitError, errIncompleteStatus.Error()},
		"nodes are forbidden":      {fmt.Sprintf(ready, "True"), nodesPath, exitError, errIncompleteStatus.Error()},
		"not ready, and forbidden": {fmt.Sprintf(ready, "False"), leasePath, exitNo, ""},
	} {
		t.Run(name, func(t *testing.T) {
			objects := smallCluster()
			objects[gatesPath] = list("nodegate.dev/v1alpha1", "NodeGateList", agentGate+c.status)
			objects[leasePath] = fmt.Sprintf(`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: nodegate},
				spec: {holderIdentity: a, leaseDurationSeconds: 15, renewTime: %q}}`, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
			server := newAPIServer(t, objects)
			server.forbid(c.refuse)
			code, out, err := server.run(t, "status")
			if code != c.want || !strings.Contains(err, c.says) {
				t.Errorf("exit status %d, want %d with %q:\n%s%s", code, c.want, c.says, out, err)
			}
		})
	}
}

// A gate that only has records on nodes does not count as not found if nodes cannot be read.
func TestStatusOfUnknownGateWithoutNodes(t *testing.T) {
	server := newAPIServer(t, smallCluster())
	server.forbid(nodesPath)
	code, out, err := server.run(t, "status", "former")
	if want := "error: gate \"former\" not found; whether nodes have its records is unknown: listing nodes: "; code != exitError || out != "" || !strings.HasPrefix(err, want) {
		t.Errorf("exit status %d, want %q:\n%s%s", code, want, out, err)
	}
}
