// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/transport"

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
// for this boot. A record of a former boot may stay for days: its gate counts as closed for as
// long as it holds a pod.
func TestGatesOfTheState(t *testing.T) {
	const (
		openNow      = `{"state":"Open","boot":"boot-2"}`
		openBefore   = `{"state":"Open","boot":"boot-1"}`
		closedBefore = `{"state":"Closed","boot":"boot-1","taint":"g:NoSchedule"}`
		closedNow    = `{"state":"Closed","boot":"boot-2","taint":"g:NoSchedule"}`
		forcedOpen   = `{"state":"Closed","boot":"boot-2","taint":"g:NoSchedule","override":"Open","overrideSince":"2026-01-01T00:00:00Z"}`
		forcedShut   = `{"state":"Open","boot":"boot-2","taint":"g:NoSchedule","override":"Closed","overrideSince":"2026-01-01T00:00:00Z"}`
	)
	unchanged := func(*nodeGate) {}
	open := []hold.Gate{{Name: "g", Open: true, Seconds: 600}}
	closed := []hold.Gate{{Name: "g", Seconds: 600}}
	for _, test := range []struct {
		name   string
		record string
		known  time.Duration // how long the agent has known the boot
		change func(*nodeGate)
		want   []hold.Gate
	}{
		{"open in this boot", openNow, 0, unchanged, open},
		{"open in the previous boot", openBefore, 0, unchanged, closed},
		{"just before the limit", openBefore, 600*time.Second - 1, unchanged, closed},
		{"at the limit", openBefore, 600 * time.Second, unchanged, open},
		{"at its own limit", openBefore, 5 * time.Second, func(g *nodeGate) { g.Spec.HoldSeconds = new(int32(5)) }, []hold.Gate{{Name: "g", Open: true, Seconds: 5}}},
		{"closed in the previous boot", closedBefore, time.Hour, unchanged, closed},
		{"closed, after the limit", closedNow, time.Hour, unchanged, closed},
		{"closed by an override, after the limit", forcedShut, time.Hour, unchanged, closed},
		{"closed", closedNow, 0, unchanged, closed},
		{"opened by an override", forcedOpen, 0, unchanged, open},
		{"closed by an override", forcedShut, 0, unchanged, closed},
		{"not a member", "", 0, unchanged, []hold.Gate{}},
		{"damaged record", "{", 0, unchanged, []hold.Gate{}},
		{"limited", closedNow, 0, func(g *nodeGate) { g.Spec.HoldSeconds = new(int32(5)) }, []hold.Gate{{Name: "g", Seconds: 5}}},
		{"reports only", closedNow, 0, func(g *nodeGate) { g.Spec.BypassedPods = "Report" }, []hold.Gate{}},
		{"paused", closedNow, 0, func(g *nodeGate) { g.Spec.Mode = modePaused }, closed},
		{"paused, open in the previous boot", openBefore, 0, func(g *nodeGate) { g.Spec.Mode = modePaused }, open},
		{"dry run", closedNow, 0, func(g *nodeGate) { g.Spec.Mode = modeDryRun }, []hold.Gate{}},
		{"unreadable", closedNow, 0, func(g *nodeGate) { g.unreadable = true }, []hold.Gate{}},
		{"not accepted", closedNow, 0, func(g *nodeGate) {
			g.Conditions = []condition{{Type: conditionAccepted, Status: conditionFalse}}
		}, []hold.Gate{}},
	} {
		node := nodeWith(map[string]string{recordAnnotationPrefix + "g": test.record})
		got := stateOf(boot, test.known, node, []*nodeGate{gateNamed("g", test.change)}, nil)
		if diff := cmp.Diff(&hold.State{Boot: boot, Gates: test.want, Pods: map[string]hold.BoundPod{}}, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

// The time for which a gate whose record is of a former boot counts as closed starts when the agent
// first writes the state in a boot, and does not start again when the agent does.
func TestClosedForAFormerBootOnceInABoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The kernel of a node that is a container started before the node's boot.
		store, powerOn := hold.Store{Dir: t.TempDir()}, time.Now().Add(-time.Hour)
		run := func(boot string, runs time.Duration, want bool) {
			t.Helper()
			a := &Agent{
				Client: serving(t, `{"state":"Open","boot":"boot-0"}`, `{"bypassedPods":"Hold","holdSeconds":90}`), Node: "mine", Boot: boot,
				Uptime: func() time.Duration { return time.Since(powerOn) }, Store: store, Log: slog.New(slog.DiscardHandler),
			}
			ctx, stop := context.WithTimeout(t.Context(), runs)
			defer stop()
			if err := a.Run(ctx); err != nil {
				t.Fatal(err)
			}
			state, err := store.Read()
			if err != nil || len(state.Gates) != 1 || state.Gates[0].Open != want {
				t.Errorf("%s after power-on, in %s: the state is %+v, %v, want open %v", time.Since(powerOn), boot, state, err, want)
			}
		}
		run("boot-1", 80*time.Second, false)
		run("boot-1", 80*time.Second, true)
		run("boot-1", time.Second, true)
		run("boot-2", time.Second, false)
		run("boot-2", 119*time.Second, false) // the state is written every minute
		run("boot-2", time.Second, true)
	})
}

// serving returns a client of an API server with a gate of this spec, and a Node with this record of
// it.
func serving(t *testing.T, record, spec string) *jsonclient.Client {
	t.Helper()
	annotations, err := json.Marshal(map[string]string{recordAnnotationPrefix + "g": record})
	if err != nil {
		t.Fatal(err)
	}
	items := map[string]string{
		nodesPath: `{"metadata":{"name":"mine","resourceVersion":"1","annotations":` + string(annotations) + `}}`,
		gatesPath: `{"metadata":{"name":"g","resourceVersion":"1"},"spec":` + spec + `}`,
	}
	client, err := jsonclient.New("http://test", &transport.Config{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		return listed(r, items)
	})})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// listed answers lists with these items, by path. Watches report nothing until their context ends.
func listed(r *http.Request, items map[string]string) (*http.Response, error) {
	if r.URL.Query().Has("watch") {
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	body := `{"metadata":{"resourceVersion":"1"},"items":[` + items[r.URL.Path] + `]}`
	return &http.Response{StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(strings.NewReader(body))}, nil
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
	got := stateOf(boot, 0, node, gates, []*pod{
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
		if got := stateOf(boot, 0, nodeWith(nil), nil, []*pod{p}).Pods["p"].Restarts; got != want {
			t.Errorf("%s: %v, want %v", spec, got, want)
		}
	}
}
