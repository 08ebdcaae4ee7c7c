// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

// The exit status is 0 only if no gate may be about to close because of what could not be read.
func TestWhyExitStatus(t *testing.T) {
	const (
		daemon = "openWhen: [{name: daemon, daemonSet: {namespace: kube-system, name: daemon}}]"
		label  = "openWhen: [{name: fit, label: {key: fit}}]"
		opened = `{"state":"Open","reason":"SignalsHold","taint":"example.com/a:NoSchedule","source":"crd"}`
		before = `{"state":"Open","reason":"SignalsHold","taint":"example.com/a:NoSchedule","source":"crd","boot":"former"}`
	)
	for name, c := range map[string]struct {
		spec, record, refuse string
		want                 int
	}{
		"a held node":           {daemon, "", daemonsPath, exitNo},
		"closes on reboots":     {daemon, opened, daemonsPath, exitYes},
		"has rebooted":          {daemon, before, daemonsPath, exitError},
		"ignores reboots":       {daemon + "\n  reclosePolicy: Never", before, daemonsPath, exitYes},
		"another does not hold": {strings.Replace(daemon, "openWhen: [", "closeWhen: [{name: fit, label: {key: fit}}, ", 1), "", daemonsPath, exitYes},
		"closes with its group, which the node is not in": {
			daemon + "\n  openTogether: {labelKey: group, atLeast: 2}\n  closeTogether: WhenIncomplete", opened, daemonsPath, exitYes,
		},
		"closes on regression":      {daemon + "\n  reclosePolicy: OnRegression", opened, daemonsPath, exitError},
		"nothing is hidden from it": {label + "\n  reclosePolicy: OnRegression", opened, daemonsPath, exitYes},
		"closes while signals hold": {strings.Replace(daemon, "open", "close", 1), "", daemonsPath, exitError},
		"is in dry run":             {strings.Replace(daemon, "open", "close", 1) + "\n  mode: DryRun", "", daemonsPath, exitYes},
		"keeps no pods off": {
			"taint: {key: example.com/a, effect: PreferNoSchedule}\n  " + strings.Replace(daemon, "open", "close", 1), "", daemonsPath, exitYes,
		},
		"keeps pods off when it closes again": {
			"taint: {key: example.com/a, effect: PreferNoSchedule}\n  recloseTaint: {key: example.com/b, effect: NoSchedule}\n  " + daemon + "\n  reclosePolicy: OnRegression",
			opened, daemonsPath, exitError,
		},
		"closes existing nodes":      {daemon + "\n  existingNodes: Close", "existing", daemonsPath, exitError},
		"adopts existing nodes":      {daemon + "\n  existingNodes: Adopt", "existing", daemonsPath, exitYes},
		"ignores existing nodes":     {daemon, "existing", daemonsPath, exitYes},
		"adopts nodes that are idle": {label + "\n  existingNodes: CloseIfIdle", "existing", "/api/v1/pods", exitError},
	} {
		t.Run(name, func(t *testing.T) {
			objects := smallCluster()
			node := heldNode
			if c.record != "" || strings.Contains(c.spec, "closeWhen") {
				node = "apiVersion: v1\nkind: Node\nmetadata:\n  name: n1\n  uid: uid\n  resourceVersion: '1'\n  creationTimestamp: '2026-03-01T01:00:00Z'\n"
			}
			switch c.record {
			case opened, before:
				node += "  annotations: {gate.nodegate.dev/agent: '" + c.record + "'}\n"
			case "existing":
				node = strings.Replace(node, "2026-03-01", "2026-02-01", 1)
			}
			node += "status: {nodeInfo: {bootID: now}, conditions: [{type: Ready, status: 'True'}]}\n"
			gates := strings.Split(agentGate, "  openWhen")[0] + "  " + c.spec + "\n"
			if strings.HasPrefix(c.spec, "taint:") {
				gates = strings.Replace(gates, "  taint: {key: example.com/a, effect: NoSchedule}\n", "", 1)
			}
			objects[nodesPath+"/n1"], objects[gatesPath] = node, list("nodegate.dev/v1alpha1", "NodeGateList", gates)
			server := newAPIServer(t, objects)
			server.forbid(c.refuse)
			code, out, err := server.run(t, "why", "n1")
			if code != c.want || (code == exitError) != strings.Contains(err, errMayClose.Error()) {
				t.Errorf("exit status %d, want %d:\n%s%s", code, c.want, out, err)
			}
		})
	}
}

// A gate closes on an unreachable node unless most nodes of its zone are unreachable, which
// is unknown if nodes may not be listed.
func TestWhyUnreachableNodeOfUnknownZone(t *testing.T) {
	const unreachable = `
apiVersion: v1
kind: Node
metadata:
  name: n1
  uid: uid
  resourceVersion: '1'
  creationTimestamp: '2026-03-01T01:00:00Z'
  annotations: {gate.nodegate.dev/agent: '{"state":"Open","reason":"SignalsHold","since":"2026-03-01T02:00:00Z","taint":"example.com/a:NoSchedule","source":"crd"}'}
status: {conditions: [{type: Ready, status: Unknown, lastTransitionTime: '2026-03-01T03:00:00Z'}]}
`
	for refuse, want := range map[string]struct {
		code int
		text string
	}{
		"":        {exitNo, ", about to close, because the node became unreachable"},
		nodesPath: {exitError, "the gate is about to close unless most nodes of the node's zone are unreachable, which is unknown: get permission to list nodes, and retry"},
	} {
		objects := smallCluster()
		objects[nodesPath+"/n1"], objects[nodesPath] = unreachable, list("v1", "NodeList", unreachable)
		server := newAPIServer(t, objects)
		server.forbid(refuse)
		code, out, err := server.run(t, "why", "n1")
		if code != want.code || !strings.Contains(out, want.text) || (code == exitError) != strings.Contains(err, errMayClose.Error()) {
			t.Errorf("without %q: exit status %d, want %d, and %q:\n%s%s", refuse, code, want.code, want.text, out, err)
		}
	}
}

// A gate with the taint of a deleted gate takes over its record: the node stays held. Without such a
// gate, the node is released.
func TestWhyDeletedGate(t *testing.T) {
	renamed := strings.Replace(heldNode, "gate.nodegate.dev/agent", "gate.nodegate.dev/former", 1)
	for name, c := range map[string]struct {
		gates string
		want  []string
	}{
		"renamed": {
			list("nodegate.dev/v1alpha1", "NodeGateList", strings.Replace(agentGate, "2026-03-01T00", "2026-03-02T00", 1)),
			[]string{"held by 1 of 2 gates", "\nagent: closed for ", "\nformer: not a member", "takes over the record"},
		},
		"deleted": {
			list("nodegate.dev/v1alpha1", "NodeGateList"),
			[]string{"held by 1 of 1 gates", "about to release the node, because the gate no longer exists (GateDeleted)", "the controller removes its taint and record"},
		},
	} {
		objects := smallCluster()
		objects[nodesPath+"/n1"], objects[gatesPath] = renamed, c.gates
		code, out, err := newAPIServer(t, objects).run(t, "why", "n1")
		for _, want := range c.want {
			if code != exitNo || !strings.Contains(out, want) {
				t.Errorf("%s: exit status %d, want %d, and %q:\n%s%s", name, code, exitNo, want, out, err)
			}
		}
	}
}
