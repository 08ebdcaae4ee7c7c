// SPDX-License-Identifier: Apache-2.0

package timeline_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/signal"
	"github.com/nodegate/nodegate/internal/timeline"
)

var (
	born = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)
	now  = born.Add(time.Hour)
)

func at(seconds int) time.Time { return born.Add(time.Duration(seconds) * time.Second) }

// world is a node and its environment. Each case specifies the differences.
type world struct {
	gates   []string
	younger bool // the gates were created a minute after the node, and not before it
	// shutdown means that the node has announced its shutdown.
	shutdown bool
	// rejected means that the gates are not in force.
	rejected bool
	records  map[string]string
	shadow   map[string]string
	// overrides are the annotations that request overrides, by gate.
	overrides map[string]string
	labels    map[string]string
	// conditions are the seconds after the node's creation at which conditions became
	// True. The default of Ready is 40. Conditions with negative values are not True.
	conditions map[string]int
	untrue     map[string]bool
	taints     []string
	// daemon is the number of seconds after the node's creation at which the pod of
	// DaemonSet kube-system/agent became ready. Its container started 10 seconds before.
	daemon       int
	daemonUnread bool
	// pods are workload pods.
	pods []gate.BoundPod
	// runs means that pods that run once were read. There are none.
	runs bool
	// complete means that no other gates exist.
	complete bool
	// podsUnread means that all pods of the node were not read.
	podsUnread bool
}

// byDaemon, byLabel and byCondition return gates. more is appended to their spec.
func byDaemon(more string) string {
	return one("daemonSet: {namespace: kube-system, name: agent}", more)
}
func byLabel(more string) string     { return one("label: {key: fit}", more) }
func byCondition(more string) string { return one("condition: {type: Fit, status: 'True'}", more) }
func one(signal, more string) string {
	return "metadata: {name: a}\nspec:\n  taint: {key: example.com/a, effect: NoSchedule}\n  openWhen: [{name: s, " + signal + "}]\n  " + more
}

// other returns the definition or the record of gate a for gate b.
func other(of string) string {
	return strings.NewReplacer("name: a}", "name: b}", "example.com/a", "example.com/b").Replace(of)
}

const (
	closed = `{"state":"Closed","reason":"Birth","boot":"b","taint":"example.com/a:NoSchedule","source":"crd"}`
	opened = `{"state":"Open","reason":"SignalsHold","since":"2026-03-01T03:01:30Z","boot":"b","taint":"example.com/a:NoSchedule","source":"crd"}`
)

// check selects the pods of a check that runs once.
var check = gate.PodQuery{Namespace: "checks", Selector: "app=check", Runs: true}

// succeeded is what the record contains of a success of the check.
func succeeded(seconds int) gate.Completions {
	var all gate.Completions
	all.Add(gate.NewIncarnation(types.UID(check.Namespace), []string{check.Selector}).String(), gate.Success{Ended: at(seconds), Created: at(seconds - 20)})
	return all
}

func workload(name string, bound int, change ...func(*gate.BoundPod)) gate.BoundPod {
	p := gate.BoundPod{
		Namespace: "shop", Name: name, UID: types.UID(name), Owned: true, Created: at(bound - 5), Bound: at(bound),
		Starts: []gate.Start{{At: at(bound + 2), Running: true}, {At: at(bound + 3), Running: true}},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

func tolerating(p *gate.BoundPod) {
	p.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}
func mirror(p *gate.BoundPod) { p.Mirror = true }
func daemon(p *gate.BoundPod) { p.Daemon = true }

func TestTrace(t *testing.T) {
	for _, c := range []struct {
		name string
		world
		want string
	}{
		{"a node that opened and works", world{
			gates: []string{byDaemon("")}, records: map[string]string{"a": opened}, daemon: 88, pods: []gate.BoundPod{workload("web", 95)},
		}, `ready 40; a Open: closed 0, opened 90, s held 88 (pod kube-system/agent-x: 1, 78, 88); opened 90; first shop/web 95, 98`},
		{"a node that is held", world{
			gates: []string{byLabel("")}, records: map[string]string{"a": closed}, taints: []string{"example.com/a"},
		}, `ready 40; a Closed: closed 0, opened Pending, s held Pending; held; opened Pending`},
		{"a signal without a time in the API", world{
			gates: []string{byLabel("")}, records: map[string]string{"a": opened}, labels: map[string]string{"fit": ""},
		}, `ready 40; a Open: closed 0, opened 90, s held Untold; opened 90`},
		{"a signal that was interrupted", world{
			gates: []string{byDaemon("")}, records: map[string]string{"a": opened}, daemon: 2000,
		}, `ready 40; a Open: closed 0, opened 90, s held 2000 AfterOpening (pod kube-system/agent-x: 1, 1990, 2000); opened 90`},
		{"a clock that is slightly ahead", world{
			gates: []string{byDaemon("")}, records: map[string]string{"a": opened}, daemon: 96,
		}, `ready 40; a Open: closed 0, opened 90, s held 96 (pod kube-system/agent-x: 1, 86, 96); opened 90`},
		{"a signal that no longer holds", world{
			gates: []string{byLabel("")}, records: map[string]string{"a": opened},
		}, `ready 40; a Open: closed 0, opened 90, s held Lost; opened 90`},
		{"daemons that another taint keeps off the node", world{
			gates:   []string{one("daemonSets: {namespaces: [kube-system], selector: {}}", "")},
			records: map[string]string{"a": opened}, taints: []string{"pool"},
		}, `ready 40; a Open: closed 0, opened 90, s held Untold; opened 90`},
		{"a signal that the gate did not wait for", world{
			gates:   []string{byLabel("")},
			records: map[string]string{"a": strings.Replace(opened, "SignalsHold", "DeadlinePassed", 1)},
		}, `ready 40; a Open: closed 0, opened 90, s held Pending; opened 90`},
		{"a signal that held after the deadline had opened the gate", world{
			gates: []string{byCondition("")}, conditions: map[string]int{"Fit": 2000},
			records: map[string]string{"a": strings.Replace(opened, "SignalsHold", "DeadlinePassed", 1)},
		}, `ready 40; a Open: closed 0, opened 90, s held 2000 AfterOpening; opened 90`},
		{"a signal that held after an override had opened the gate", world{
			gates: []string{byCondition("")}, conditions: map[string]int{"Fit": 2000},
			records: map[string]string{"a": strings.TrimSuffix(closed, "}") + `,"override":"Open","overrideSince":"2026-03-01T03:05:00Z"}`},
		}, `ready 40; a Open overridden: closed 0, opened 300, s held 2000 AfterOpening; opened 300`},
		{"a signal that held after the node became a member with the gate open", world{
			gates: []string{byCondition("")}, conditions: map[string]int{"Fit": 2000},
			records: map[string]string{"a": strings.Replace(opened, "SignalsHold", "Adopted", 1)},
		}, `ready 40; a Open: closed Untold, opened 90 Joined, s held 2000; opened Joined`},
		{"a signal that held after an override had opened a closeWhen gate", world{
			gates: []string{strings.Replace(byCondition(""), "openWhen", "closeWhen", 1)}, conditions: map[string]int{"Fit": 2000},
			records: map[string]string{"a": strings.TrimSuffix(closed, "}") + `,"override":"Open","overrideSince":"2026-03-01T03:05:00Z"}`},
		}, `ready 40; a Open overridden: closed Untold, opened 300, s held 2000; opened NoGate`},
		{"pods that could not be read", world{
			gates: []string{byDaemon("")}, records: map[string]string{"a": opened}, daemonUnread: true, podsUnread: true,
		}, `ready 40; a Open: closed 0, opened 90, s held Unread; opened 90; pods unread`},
		{"minReadySeconds", world{
			gates:   []string{one("daemonSet: {namespace: kube-system, name: agent, minReadySeconds: 20}", "")},
			records: map[string]string{"a": opened}, daemon: 60,
		}, `ready 40; a Open: closed 0, opened 90, s held 80 (pod kube-system/agent-x: 1, 50, 60); opened 90`},
		{"a condition from before the Node", world{
			gates: []string{byCondition("")}, records: map[string]string{"a": opened}, conditions: map[string]int{"Fit": -3600},
		}, `ready 40; a Open: closed 0, opened 90, s held -3600 BeforeNode; opened 90`},
		{"a clock that is slightly behind", world{
			gates: []string{byCondition("")}, records: map[string]string{"a": opened}, conditions: map[string]int{"Fit": -4},
		}, `ready 40; a Open: closed 0, opened 90, s held -4; opened 90`},
		{"a gate that was open when the node became a member", world{
			gates:   []string{byLabel("")},
			records: map[string]string{"a": strings.Replace(opened, "SignalsHold", "Adopted", 1)}, pods: []gate.BoundPod{workload("web", 95)},
		}, `ready 40; a Open: closed Untold, opened 90 Joined, s held Pending; opened Joined`},
		{"a workload from before the gate", world{
			gates:   []string{byLabel("")},
			records: map[string]string{"a": strings.Replace(opened, "SignalsHold", "Adopted", 1)}, pods: []gate.BoundPod{workload("web", 50)},
		}, `ready 40; a Open: closed Untold, opened 90 Joined, s held Pending; opened Joined`},
		{"an opening that is not the first", world{
			gates: []string{byLabel("")}, records: map[string]string{"a": opened}, labels: map[string]string{"fit": ""},
			pods: []gate.BoundPod{workload("early", 50), workload("web", 95)},
		}, `ready 40; a Open: closed Untold, opened 90 Again, s held Untold; opened 90 Again; first shop/web 95, 98`},
		{"a gate that is younger than the node", world{
			gates: []string{byDaemon("existingNodes: Close")}, younger: true, records: map[string]string{"a": opened}, daemon: 88, pods: []gate.BoundPod{workload("web", 95)},
		}, `ready 40; a Open: closed Untold, opened 90 Older, s held 88 (pod kube-system/agent-x: 1, 78, 88); opened Older`},
		{"a closeWhen gate that is younger than the node", world{
			gates: []string{strings.Replace(byLabel(""), "openWhen", "closeWhen", 1)}, younger: true,
			records: map[string]string{"a": strings.Replace(opened, "SignalsHold", "Overridden", 1)},
		}, `ready 40; a Open: closed Untold, opened 90, s held Pending; opened NoGate`},
		{"a soft gate, and one that was open when the node became a member", world{
			gates: []string{strings.Replace(byLabel(""), "NoSchedule", "PreferNoSchedule", 1), other(byLabel(""))},
			records: map[string]string{
				"a": strings.Replace(opened, "NoSchedule", "PreferNoSchedule", 1),
				"b": other(strings.Replace(opened, "SignalsHold", "Adopted", 1)),
			},
		}, `ready 40; a Open soft: closed 0, opened 90, s held Lost; b Open: closed Untold, opened 90 Joined, s held Pending; opened Joined`},
		{"an adopted taint", world{
			gates: []string{byLabel("")}, taints: []string{"example.com/a"},
			records: map[string]string{"a": `{"state":"Closed","reason":"Adopted","since":"2026-03-01T03:50:00Z","boot":"b","taint":"example.com/a:NoSchedule","source":"crd"}`},
		}, `ready 40; a Closed: closed 3000 Adopted, opened Pending, s held Pending; held; opened Pending`},
		{"overridden closed after an adoption", world{
			gates: []string{byLabel("")}, taints: []string{"example.com/a"},
			records: map[string]string{"a": `{"state":"Open","reason":"Adopted","since":"2026-03-01T03:40:00Z","taint":"example.com/a:NoSchedule","source":"crd","override":"Closed","overrideSince":"2026-03-01T03:50:00Z"}`},
		}, `ready 40; a Closed overridden: closed 3000, opened Pending, s held Pending; held; opened Pending`},
		{"pods of a former Node of the same name", world{
			gates: []string{byLabel("")}, records: map[string]string{"a": opened}, labels: map[string]string{"fit": ""},
			pods: []gate.BoundPod{workload("former", -300), workload("web", 95)},
		}, `ready 40; a Open: closed 0, opened 90, s held Untold; opened 90; first shop/web 95, 98`},
		{"a pod that tolerates all taints", world{
			gates: []string{byLabel("")}, records: map[string]string{"a": opened}, labels: map[string]string{"fit": ""},
			pods: []gate.BoundPod{workload("early", 30, tolerating)},
		}, `ready 40; a Open: closed 0, opened 90, s held Untold; opened 90`},
		{"a node that was ready before", world{
			gates: []string{byLabel("")}, records: map[string]string{"a": opened}, labels: map[string]string{"fit": ""},
			conditions: map[string]int{"Ready": 3000}, pods: []gate.BoundPod{workload("web", 95)},
		}, `ready 3000 Again; a Open: closed 0, opened 90, s held Untold; opened 90; first shop/web 95, 98`},
		{"a node that is not ready", world{untrue: map[string]bool{"Ready": true}}, `ready Pending; opened NoGate`},
		{"the first of a workload's pods", world{
			gates: []string{byLabel("")}, records: map[string]string{"a": opened}, labels: map[string]string{"fit": ""},
			pods: []gate.BoundPod{workload("third", 300), workload("second", 200), workload("agent", 91, daemon), workload("static", 92, mirror)},
		}, `ready 40; a Open: closed 0, opened 90, s held Untold; opened 90; first shop/second 200, 203`},
		{"closed again for a reboot", world{
			gates: []string{byLabel("")}, taints: []string{"example.com/a"},
			records: map[string]string{"a": `{"state":"Closed","reason":"Rebooted","since":"2026-03-01T03:50:00Z","boot":"b","taint":"example.com/a:NoSchedule","source":"crd"}`},
		}, `ready 40; a Closed: closed 3000, opened Pending, s held Pending; held; opened Pending`},
		{"a PreferNoSchedule gate", world{
			gates:   []string{strings.Replace(byLabel(""), "NoSchedule", "PreferNoSchedule", 1)},
			records: map[string]string{"a": strings.Replace(closed, "NoSchedule", "PreferNoSchedule", 1)},
		}, `ready 40; a Closed soft: closed 0, opened Pending, s held Pending; opened NoGate`},
		{"a closeWhen gate", world{
			gates:   []string{strings.Replace(byLabel(""), "openWhen", "closeWhen", 1)},
			records: map[string]string{"a": `{"state":"Closed","reason":"SignalsHold","since":"2026-03-01T03:50:00Z","taint":"example.com/a:NoSchedule","source":"crd"}`},
			labels:  map[string]string{"fit": ""}, taints: []string{"example.com/a"},
		}, `ready 40; a Closed: closed 3000, opened Pending, s held Untold; held; opened Pending`},
		{"a gate in dry run", world{
			gates: []string{byLabel("mode: DryRun")}, shadow: map[string]string{"a": closed},
		}, `ready 40; opened NoGate`},
		{"a pod bound before a PreferNoSchedule gate opened", world{
			gates:   []string{strings.Replace(byLabel(""), "NoSchedule", "PreferNoSchedule", 1)},
			records: map[string]string{"a": strings.Replace(opened, "NoSchedule", "PreferNoSchedule", 1)},
			labels:  map[string]string{"fit": ""}, pods: []gate.BoundPod{workload("early", 50)},
		}, `ready 40; a Open soft: closed 0, opened 90, s held Untold; opened NoGate`},
		{"a gate without a record", world{gates: []string{byLabel("")}}, `ready 40; opened NoGate`},
		{"overridden", world{
			gates:   []string{byLabel("")},
			records: map[string]string{"a": strings.TrimSuffix(closed, "}") + `,"override":"Open","overrideSince":"2026-03-01T03:05:00Z"}`},
		}, `ready 40; a Open overridden: closed 0, opened 300, s held Pending; opened 300`},
		{"an adopted taint, overridden open", world{
			gates:   []string{byLabel("")},
			records: map[string]string{"a": `{"state":"Closed","reason":"Adopted","since":"2026-03-01T03:00:10Z","boot":"b","taint":"example.com/a:NoSchedule","source":"crd","override":"Open","overrideSince":"2026-03-01T03:05:00Z"}`},
		}, `ready 40; a Open overridden: closed 10 Adopted, opened 300, s held Pending; opened 300`},
		{"overridden open again", world{
			gates:   []string{byLabel("")},
			records: map[string]string{"a": `{"state":"Closed","reason":"OverrideEnded","since":"2026-03-01T03:04:00Z","boot":"b","taint":"example.com/a:NoSchedule","source":"crd","override":"Open","overrideSince":"2026-03-01T03:05:00Z"}`},
		}, `ready 40; a Open overridden: closed Untold, opened 300 Again, s held Pending; opened 300 Again`},
		{"a deleted gate", world{records: map[string]string{"a": opened, "garbled": "{"}}, `ready 40; a Open unknown: closed 0, opened 90; opened 90`},
		{"a record of a former Node of the same name", world{
			gates: []string{byLabel("")}, younger: true, records: map[string]string{"a": strings.Replace(opened, "03:01:30Z", "02:01:30Z", 1)},
		}, `ready 40; opened NoGate`},
		{"a gate that takes over the record of a deleted gate", world{
			gates: []string{other(byLabel(""))}, younger: true, records: map[string]string{"a": other(closed)}, taints: []string{"example.com/b"}, complete: true,
		}, `ready 40; b Closed: closed Untold, opened Pending, s held Pending; held; opened Pending`},
		{"a run whose pod was deleted after its success", world{
			gates: []string{one("completed: {namespace: checks, selector: {matchLabels: {app: check}}}", "")}, runs: true,
			records: map[string]string{"a": strings.TrimSuffix(opened, "}") + `,"completed":"` + string(succeeded(80)) + `"}`},
		}, `ready 40; a Open: closed 0, opened 90, s held 80; opened 90`},
		{"an unreadable record of a closed gate", world{
			gates: []string{byLabel("")}, records: map[string]string{"a": "{"}, taints: []string{"example.com/a"},
		}, `ready 40; a Closed: closed Untold, opened Pending, s held Pending; held; opened Pending`},
		{"an unreadable record of a soft gate", world{
			gates:   []string{strings.Replace(byLabel(""), "NoSchedule", "PreferNoSchedule", 1)},
			records: map[string]string{"a": "{"}, taints: []string{"example.com/a:PreferNoSchedule"},
		}, `ready 40; a Closed soft: closed Untold, opened Pending, s held Pending; opened NoGate`},
		{"an unreadable record of an open gate", world{
			gates: []string{byLabel("")}, records: map[string]string{"a": "{"},
		}, `ready 40; a Open: closed Untold, opened Joined, s held Pending; opened Joined`},
		{"an unreadable record of an open closeWhen gate", world{
			gates: []string{strings.Replace(byLabel(""), "openWhen", "closeWhen", 1)}, records: map[string]string{"a": "{"},
		}, `ready 40; opened NoGate`},
		{"the last of two gates", world{
			gates: []string{byLabel(""), other(byCondition(""))},
			records: map[string]string{
				"a": opened, "b": other(strings.Replace(opened, "03:01:30Z", "03:02:30Z", 1)),
			},
			labels: map[string]string{"fit": ""}, conditions: map[string]int{"Fit": 150}, pods: []gate.BoundPod{workload("between", 100, tolerating)},
		}, `ready 40; a Open: closed 0, opened 90, s held Untold; b Open: closed 0, opened 150, s held 150; opened 150`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := show(c.trace(t)); got != c.want {
				t.Errorf("got\n %s, want\n %s", got, c.want)
			}
		})
	}
}

// A closed gate waits for its signals also if it is not in force or the node is unreachable, but not
// if a mode or an override determines its state.
func TestGatesThatIgnoreTheirSignals(t *testing.T) {
	overridden := strings.TrimSuffix(opened, "}") + `,"override":"Closed","overrideSince":"2026-03-01T03:05:00Z"}`
	override := map[string]string{"a": `{"state":"Closed","until":"2026-03-01T05:00:00Z","reason":"r","uid":"uid"}`}
	for _, c := range []struct {
		name string
		world
		awaits  int
		blocked bool
	}{
		{"enforced", world{gates: []string{byLabel("")}, records: map[string]string{"a": closed}}, 1, false},
		{"rejected", world{gates: []string{byLabel("")}, records: map[string]string{"a": closed}, rejected: true}, 1, false},
		{"about to open", world{gates: []string{byLabel("")}, records: map[string]string{"a": closed}, labels: map[string]string{"fit": ""}}, 0, false},
		{"shutting down", world{gates: []string{byLabel("")}, records: map[string]string{"a": closed}, shutdown: true}, 1, true},
		{"paused", world{gates: []string{byLabel("mode: Paused")}, records: map[string]string{"a": closed}}, 0, true},
		{"overridden", world{gates: []string{byLabel("")}, records: map[string]string{"a": overridden}, overrides: override}, 0, true},
		{"closed and overridden", world{gates: []string{byLabel("")}, records: map[string]string{"a": closed}, overrides: override}, 0, true},
	} {
		c.taints = []string{"example.com/a"}
		g := c.trace(t).Gates[0]
		if !g.Holds() || len(g.Signals) != 1 || len(g.Awaited()) != c.awaits || g.Blocked != "" != c.blocked {
			t.Errorf("%s: the gate waits for %d of %d signals, blocked: %q; want %d", c.name, len(g.Awaited()), len(g.Signals), g.Blocked, c.awaits)
		}
		if opens := c.awaits == 0 && !c.blocked; g.Opens != opens {
			t.Errorf("%s: the gate is about to open: %t", c.name, g.Opens)
		}
	}
}

// Nothing can open a gate on a node that shuts down, but that does not concern one that is open.
func TestOpenGateIsNotBlocked(t *testing.T) {
	w := world{gates: []string{byLabel("")}, records: map[string]string{"a": opened}, shutdown: true}
	if g := w.trace(t).Gates[0]; g.State != v1alpha1.StateOpen || g.Blocked != "" {
		t.Errorf("the gate is %s, and blocked: %q", g.State, g.Blocked)
	}
}

func (w *world) trace(t *testing.T) timeline.History {
	t.Helper()
	var gates []gate.Gate
	for _, text := range w.gates {
		var ng v1alpha1.NodeGate
		if err := yaml.UnmarshalStrict([]byte(text), &ng); err != nil {
			t.Fatal(err)
		}
		if ng.CreationTimestamp.Time = born.Add(-time.Hour); w.younger {
			ng.CreationTimestamp.Time = born.Add(time.Minute)
		}
		g, err := signal.Compile(&ng, v1alpha1.SourceCRD)
		if err != nil {
			t.Fatal(err)
		}
		g.Accepted = !w.rejected
		gates = append(gates, g)
	}
	n := gate.Node{Name: "n1", UID: "uid", BootID: "b", Created: born, Labels: w.labels, Records: w.records, Overrides: w.overrides, ShuttingDown: w.shutdown}
	for _, key := range w.taints {
		key, effect, _ := strings.Cut(key, ":")
		n.Taints = append(n.Taints, corev1.Taint{Key: key, Effect: cmp.Or(corev1.TaintEffect(effect), corev1.TaintEffectNoSchedule)})
	}
	conditions := map[string]int{"Ready": 40}
	for name, since := range w.conditions {
		conditions[name] = since
	}
	for name, since := range conditions {
		status := corev1.ConditionTrue
		if w.untrue[name] {
			status = corev1.ConditionFalse
		}
		n.Conditions = append(n.Conditions, gate.Condition{Type: name, Status: status, Transition: at(since)})
	}
	ds := gate.DaemonSet{Namespace: "kube-system", Name: "agent", UID: "ds", Pods: gate.PodQuery{Namespace: "kube-system", Selector: "app=agent"}}
	facts := gate.Facts{Node: n, DaemonSets: &gate.DaemonSets{Observed: map[string]bool{"kube-system": true}, Items: []gate.DaemonSet{ds}}}
	if !w.daemonUnread {
		facts.Pods = map[gate.PodQuery][]gate.Pod{ds.Pods: nil}
	}
	all := &gate.PodList{At: now, Pods: w.pods}
	if w.daemon > 0 {
		facts.Pods[ds.Pods] = []gate.Pod{{UID: "x", Name: "kube-system/agent-x", Owner: "ds", Created: at(1), Ready: true, ReadySince: at(w.daemon)}}
		all.Pods = append(slices.Clone(all.Pods), gate.BoundPod{
			Namespace: "kube-system", Name: "agent-x", UID: "x", Daemon: true, Created: at(1), Bound: at(1), Starts: []gate.Start{{At: at(w.daemon - 10)}},
		})
	}
	if w.podsUnread {
		all = nil
	}
	if w.runs {
		facts.Pods[check] = nil
	}
	if w.complete {
		facts.CompleteSources = map[string]bool{v1alpha1.SourceCRD: true}
	}
	facts.Shadow = w.shadow
	d := gate.Decide(gates, &facts, now)
	return timeline.Trace(gates, &facts, &d, all, now)
}

// show formats a life as one line, with times in seconds after the node's creation.
func show(l timeline.History) string {
	seconds := func(t time.Time) string { return fmt.Sprint(int(t.Sub(born).Seconds())) }
	moment := func(m timeline.Moment) string {
		text := string(m.Doubt)
		if !m.At.IsZero() {
			text = strings.TrimSpace(seconds(m.At) + " " + text)
		}
		return text
	}
	parts := []string{"ready " + moment(l.Ready)}
	for _, g := range l.Gates {
		text := g.Gate + " " + g.State
		for _, is := range []struct {
			so   bool
			word string
		}{{g.Soft, " soft"}, {g.Overridden, " overridden"}, {g.Unknown, " unknown"}, {g.Overdue, " overdue"}} {
			if is.so {
				text += is.word
			}
		}
		text += ": closed " + moment(g.Closed) + ", opened " + moment(g.Opened)
		for _, s := range g.Signals {
			text += ", " + s.Name + " held " + moment(s.Held)
			if p := s.Pod; p != nil {
				text += fmt.Sprintf(" (pod %s: %s, %s, %s)", p.Name, seconds(p.Created), seconds(p.Started), seconds(p.Ready))
			}
		}
		parts = append(parts, text)
	}
	if l.Held {
		parts = append(parts, "held")
	}
	parts = append(parts, "opened "+moment(l.Opened))
	if p := l.FirstPod; p != nil {
		parts = append(parts, fmt.Sprintf("first %s %s, %s", p.Name, seconds(p.Bound), seconds(p.Started)))
	}
	if !l.PodsRead {
		parts = append(parts, "pods unread")
	}
	return strings.Join(parts, "; ")
}
