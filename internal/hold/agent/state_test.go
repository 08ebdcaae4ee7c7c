// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/nodegate/nodegate/internal/hold"
	"github.com/nodegate/nodegate/internal/kube/jsonclient"
)

const boot = "boot-2"

func gateNamed(name string, change func(*nodeGate)) *nodeGate {
	g := &nodeGate{Metadata: jsonclient.Metadata{Name: name}, Spec: nodeGateSpec{
		Taint: taint{Key: name, Effect: "NoSchedule"}, BypassedPods: bypassedHold, Mode: "Enforce",
	}}
	change(g)
	return g
}

func podWith(uid string, tolerations ...toleration) *pod {
	p := &pod{Metadata: jsonclient.Metadata{UID: uid}}
	p.Spec.RestartPolicy = restartPolicyAlways
	p.Spec.Tolerations = tolerations
	return p
}

func nodeWith(annotations map[string]string) *node {
	return &node{nodeMetadata: nodeMetadata{Annotations: annotations}}
}

// Gates that apply to the node and hold pods are in the state, open only if their record says so
// for this boot.
func TestGatesOfTheState(t *testing.T) {
	const (
		openNow    = `{"state":"Open","boot":"boot-2"}`
		openBefore = `{"state":"Open","boot":"boot-1"}`
		closedNow  = `{"state":"Closed","boot":"boot-2","taint":"g:NoSchedule"}`
		forcedOpen = `{"state":"Closed","boot":"boot-2","taint":"g:NoSchedule","override":"Open","overrideSince":"2026-01-01T00:00:00Z"}`
		forcedShut = `{"state":"Open","boot":"boot-2","taint":"g:NoSchedule","override":"Closed","overrideSince":"2026-01-01T00:00:00Z"}`
	)
	unchanged := func(*nodeGate) {}
	open := []hold.Gate{{Name: "g", Open: true, Seconds: 600}}
	closed := []hold.Gate{{Name: "g", Seconds: 600}}
	for _, test := range []struct {
		name   string
		record string
		change func(*nodeGate)
		want   []hold.Gate
	}{
		{"open in this boot", openNow, unchanged, open},
		{"open in the previous boot", openBefore, unchanged, closed},
		{"closed", closedNow, unchanged, closed},
		{"opened by an override", forcedOpen, unchanged, open},
		{"closed by an override", forcedShut, unchanged, closed},
		{"not a member", "", unchanged, []hold.Gate{}},
		{"damaged record", "{", unchanged, []hold.Gate{}},
		{"limited", closedNow, func(g *nodeGate) { g.Spec.HoldSeconds = ptr.To[int32](5) }, []hold.Gate{{Name: "g", Seconds: 5}}},
		{"reports only", closedNow, func(g *nodeGate) { g.Spec.BypassedPods = "Report" }, []hold.Gate{}},
		{"paused", closedNow, func(g *nodeGate) { g.Spec.Mode = modePaused }, closed},
		{"paused, open in the previous boot", openBefore, func(g *nodeGate) { g.Spec.Mode = modePaused }, open},
		{"dry run", closedNow, func(g *nodeGate) { g.Spec.Mode = modeDryRun }, []hold.Gate{}},
		{"unreadable", closedNow, func(g *nodeGate) { g.unreadable = true }, []hold.Gate{}},
		{"not accepted", closedNow, func(g *nodeGate) {
			g.Conditions = []condition{{Type: conditionAccepted, Status: conditionFalse}}
		}, []hold.Gate{}},
	} {
		node := nodeWith(map[string]string{recordAnnotationPrefix + "g": test.record})
		got := stateOf(boot, node, []*nodeGate{gateNamed("g", test.change)}, nil)
		if diff := cmp.Diff(&hold.State{Boot: boot, Gates: test.want, Pods: map[string]hold.BoundPod{}}, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

// A pod waits for each gate with a taint that it does not tolerate.
func TestPodsOfTheState(t *testing.T) {
	reclosing := gateNamed("b", func(g *nodeGate) {
		g.Spec.RecloseTaint = &taint{Key: "b-again", Effect: "NoExecute"}
	})
	preferring := gateNamed("c", func(g *nodeGate) {
		g.Spec.Taint.Effect = effectPreferNoSchedule
		g.Spec.RecloseTaint = &taint{Key: "c-again", Effect: "NoSchedule"}
	})
	gates := []*nodeGate{gateNamed("a", func(*nodeGate) {}), reclosing, preferring}
	node := nodeWith(map[string]string{})
	for _, g := range gates {
		node.Annotations[recordAnnotationPrefix+g.Name] = `{"state":"Open","boot":"boot-2"}`
	}
	exists := func(key string) toleration {
		return toleration{Key: key, Operator: operatorExists}
	}
	deleted := podWith("deleted")
	deleted.DeletionTimestamp = "2026-01-01T00:00:00Z"
	deleted.Spec.RestartPolicy = "Never"
	got := stateOf(boot, node, gates, []*pod{
		podWith("workload"), podWith("daemon", exists("")), podWith("some", exists("a"), exists("b")),
		deleted,
		podWith("reclosing", exists("b"), exists("b-again"), exists("c-again")),
	})
	want := map[string]hold.BoundPod{
		"workload": {Gates: []string{"a", "b", "c"}, Restarts: true}, "daemon": {Restarts: true},
		"some": {Gates: []string{"b", "c"}, Restarts: true}, "reclosing": {Gates: []string{"a"}, Restarts: true},
		"deleted": {Gates: []string{"a", "b", "c"}, Terminating: true},
	}
	if diff := cmp.Diff(want, got.Pods); diff != "" {
		t.Error(diff)
	}
}

// A hook that fails must neither be counted nor end a container: a Job fails after some restarts
// of its containers, and a container's own policy may not restart it.
func TestRestarts(t *testing.T) {
	for spec, want := range map[string]bool{
		`{"restartPolicy":"Always","containers":[{"name":"c"}]}`:                                                                   true,
		`{"restartPolicy":"Always","containers":[{"name":"c","restartPolicy":"Always"}]}`:                                          true,
		`{"restartPolicy":"Always","initContainers":[{"name":"sidecar","restartPolicy":"Always"}]}`:                                true,
		`{"restartPolicy":"Always","containers":[{"name":"c","restartPolicyRules":[]}],"initContainers":null}`:                     true,
		`{"restartPolicy":"Never","containers":[{"name":"c"}]}`:                                                                    false,
		`{"restartPolicy":"OnFailure","containers":[{"name":"c"}]}`:                                                                false,
		`{"restartPolicy":"OnFailure","containers":[{"name":"c","restartPolicy":"Always"}]}`:                                       false,
		`{"restartPolicy":"Always","containers":[{"name":"c"},{"name":"d","restartPolicy":"Never"}]}`:                              false,
		`{"restartPolicy":"Always","containers":[{"name":"c","restartPolicy":"OnFailure"}]}`:                                       false,
		`{"restartPolicy":"Always","initContainers":[{"name":"c","restartPolicy":"Never"}],"containers":[{"name":"d"}]}`:           false,
		`{"restartPolicy":"Always","containers":[{"name":"c","restartPolicy":"Always","restartPolicyRules":[{"action":"Stop"}]}]}`: false,
		`{"restartPolicy":"Always","containers":[{"name":"c"}],"ephemeralContainers":[{"name":"d"}]}`:                              false,
		`{"restartPolicy":"Always","containers":[{"name":"c"}],"ephemeralContainers":[]}`:                                          true,
		`{}`: false,
	} {
		p := podWith("p")
		p.Spec.RestartPolicy = ""
		if err := json.Unmarshal([]byte(spec), &p.Spec); err != nil {
			t.Fatal(err)
		}
		if got := stateOf(boot, nodeWith(nil), nil, []*pod{p}).Pods["p"].Restarts; got != want {
			t.Errorf("%s: %v, want %v", spec, got, want)
		}
	}
}
