// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

// Gates that name no DaemonSet are listed, unless the arguments are DaemonSets.
func TestTolerateListsGatesWithoutDaemonSets(t *testing.T) {
	driver := strings.NewReplacer("name: agent", "name: driver", "example.com/a", "example.com/d").Replace(agentGate[:strings.Index(agentGate, "  openWhen")]) +
		"  openWhen: [{name: driver, csiDriver: {name: d.example.com}}]\n"
	const text = "Gate driver names no DaemonSet (signals: csiDriver): check that the DaemonSets behind it tolerate example.com/d:NoSchedule, and add missing tolerations yourself.\n"
	const field = `"gatesWithoutDaemonSets": [`
	const changed = "daemonset.apps/kube-system/daemon"
	for name, c := range map[string]struct {
		gates, args []string
		// want is part of the output, which is empty if want is. not is no part of it.
		want, not string
	}{
		"text":                 {[]string{driver}, []string{"--all"}, text, changed},
		"JSON":                 {[]string{driver}, []string{"--all", "-o", "json"}, field, changed},
		"names":                {[]string{driver}, []string{"--all", "-o", "name"}, "", text},
		"another gate":         {[]string{agentGate, driver}, []string{"--gate", "agent", "-o", "json"}, `"name": "daemon"`, field},
		"DaemonSet":            {[]string{agentGate, driver}, []string{"kube-system/daemon"}, changed, text},
		"JSON of a DaemonSet":  {[]string{agentGate, driver}, []string{"kube-system/daemon", "-o", "json"}, `"name": "daemon"`, field},
		"DaemonSets and gates": {[]string{agentGate, driver}, []string{"--all"}, text, "All DaemonSets"},
	} {
		objects := smallCluster()
		objects[gatesPath] = list("nodegate.dev/v1alpha1", "NodeGateList", c.gates...)
		a := newAPIServer(t, objects)
		code, out, stderr := a.run(t, append([]string{"tolerate", "--dry-run=client"}, c.args...)...)
		if code != exitYes || c.want == "" && out != "" || !strings.Contains(out, c.want) || strings.Contains(out, c.not) {
			t.Errorf("%s: exit status %d:\n%s%s", name, code, out, stderr)
		}
		if writes := a.written(); len(writes) > 0 {
			t.Errorf("%s: a dry run wrote %v", name, writes)
		}
	}
}

// A DaemonSet that is being deleted is not changed, and the error says why.
func TestTolerateOfADeletedDaemonSet(t *testing.T) {
	const path = daemonsPath + "/daemon"
	objects := smallCluster()
	deleted := strings.Replace(objects[path], "name: daemon", `name: daemon, deletionTimestamp: "2026-11-25T12:00:00Z"`, 1)
	objects[path], objects[daemonsPath] = deleted, list("apps/v1", "DaemonSetList", deleted)
	a := newAPIServer(t, objects)
	code, _, stderr := a.run(t, "tolerate", "kube-system/daemon")
	if code != exitError || !strings.Contains(stderr, "DaemonSet kube-system/daemon is being deleted") || len(a.written()) > 0 {
		t.Errorf("exit status %d, writes %v:\n%s", code, a.written(), stderr)
	}
}
