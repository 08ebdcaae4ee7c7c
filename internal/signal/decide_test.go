// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// A DaemonSet is deleted without its pods, and created again. If the node reboots in between, the
// containers of its pod are not evidence, although nobody observed the pod when the node rebooted.
func TestOrphanedDaemon(t *testing.T) {
	w := aNode(with("agent"), running("agent", created(30*time.Minute)))
	g := aClosedGate(mustCompile(t, v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "agent"}}), gate.Record{}, w)
	g.Reclose = v1alpha1.RecloseOnReboot
	open := gate.Record{State: v1alpha1.StateOpen, Reason: v1alpha1.ReasonSignalsHold, Boot: "a", Taint: gate.TaintText(g.Taint), Source: g.Source}
	n := &w.facts.Node
	n.BootID, n.Taints, n.Records["cni"], w.facts.Boot = "b", nil, open.String(), gate.Boot{Seen: epoch, After: "a"}
	sets, pods := w.facts.DaemonSets, w.facts.Pods
	decide := func(what string, after time.Duration, opens, writes bool) {
		t.Helper()
		d := gate.Decide([]gate.Gate{g}, &w.facts, epoch.Add(after))
		if opened := d.Verdicts[0].After == v1alpha1.StateOpen; opened != opens || d.Changes != writes {
			t.Errorf("%s: open %v, writes %v: %s", what, opened, d.Changes, d.Records["cni"])
		}
		if d.Changes {
			n.Taints, n.Records = d.Taints, d.Records
		}
	}
	w.facts.DaemonSets, w.facts.Pods = &gate.DaemonSets{Observed: sets.Observed}, map[gate.PodQuery][]gate.Pod{}
	decide("the DaemonSet is missing", 0, false, true)
	decide("still missing", 100*time.Millisecond, false, false)
	w.facts.DaemonSets = sets
	decide("its pods are not observed yet", 400*time.Millisecond, false, false)
	w.facts.Pods = pods
	decide("it has adopted the pod", 500*time.Millisecond, false, true)
	decide("the same pod, almost a minute later", time.Minute-1, false, false)
	decide("the same pod a minute later", time.Minute, true, true)
}

// While one DaemonSet of a gate is missing, a reboot distrusts every annotation that is older than
// the record. One that is set in the new boot stays evidence when the DaemonSet exists again.
func TestAnnotationWhileADaemonSetIsMissing(t *testing.T) {
	const key = "agent.example/ready"
	for name, c := range map[string]struct {
		marked time.Duration
		opens  bool
	}{"set in the new boot": {20 * time.Second, true}, "of the former boot": {-20 * time.Minute, false}} {
		w := aNode(with("b"), running("b", created(-50*time.Minute)))
		app := v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}
		g := aClosedGate(nil, gate.Record{}, w)
		g.Reclose, g.Signals = v1alpha1.RecloseOnReboot, []gate.NamedSignal{
			{Name: "marked", Signal: mustCompile(t, v1alpha1.SignalSource{Pods: &v1alpha1.PodsSignal{Namespace: "kube-system", Selector: app, Require: v1alpha1.RequireAny, ReadyBy: v1alpha1.ReadyByAnnotation, ReadyAnnotation: key}})},
			{Name: "b", Signal: mustCompile(t, v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "b"}})},
		}
		n, query := &w.facts.Node, gate.PodQuery{Namespace: "kube-system", Selector: "app=agent", Annotation: key}
		former := gate.Pod{UID: "p", Name: "kube-system/agent-x", Created: epoch.Add(-30 * time.Minute), Ready: true, Incarnation: 1, MarkedSince: epoch.Add(-20 * time.Minute)}
		now := former
		now.Incarnation, now.MarkedSince = 2, epoch.Add(c.marked)
		open := gate.Record{State: v1alpha1.StateOpen, Reason: v1alpha1.ReasonSignalsHold, Boot: "a", Taint: gate.TaintText(g.Taint), Source: g.Source}
		n.BootID, n.Taints, n.Records["cni"] = "b", nil, open.String()
		w.facts.Boot = gate.Boot{Seen: epoch, After: "a", Known: former.AppendKnown(nil)}
		decide := func(pod gate.Pod, sets *gate.DaemonSets, after time.Duration) gate.Decision {
			w.facts.Pods[query], w.facts.DaemonSets = []gate.Pod{pod}, sets
			d := gate.Decide([]gate.Gate{g}, &w.facts, epoch.Add(after))
			if d.Changes {
				n.Taints, n.Records = d.Taints, d.Records
			}
			return d
		}
		sets := w.facts.DaemonSets
		decide(former, &gate.DaemonSets{Observed: sets.Observed}, 0)
		decide(now, &gate.DaemonSets{Observed: sets.Observed}, 20*time.Second)
		decide(now, sets, time.Hour)
		if d := decide(now, sets, 2*time.Hour); d.Verdicts[0].After == v1alpha1.StateOpen != c.opens {
			t.Errorf("%s: %s, %v", name, d.Verdicts[0].After, d.Verdicts[0].Readings)
		}
	}
}

// mixedSignal returns the signal of the i-th of many gates. The kinds alternate.
func mixedSignal(i int) v1alpha1.Signal {
	apps := v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": mixedName(i)}}
	agent := v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: mixedName(i)}}
	kinds := []v1alpha1.SignalSource{
		agent,
		{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"kube-system"}, Selector: apps}},
		{Pods: &v1alpha1.PodsSignal{Namespace: "kube-system", Selector: apps, MinReadySeconds: 10}},
		{Completed: &v1alpha1.CompletedSignal{Namespace: "kube-system", Selector: v1alpha1.EqualitySelector{MatchLabels: apps.MatchLabels}}},
		{Condition: &v1alpha1.ConditionSignal{Type: "DiskPressure", Status: "False", ForSeconds: 60}},
		{Label: &v1alpha1.KeyValueSignal{Key: "warm"}},
		{Annotation: &v1alpha1.KeyValueSignal{Key: "warmed.example/at"}},
		{CSIDriver: &v1alpha1.CSIDriverSignal{Name: "csi.example", Allocatable: true}},
		{Resource: &v1alpha1.ResourceSignal{Name: "gpu.example/gpu"}},
		{ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: "dra.example"}},
		{Object: ciliumNode.Object},
		{Expression: `"warm" in labels && conditions.exists(c, c.type == "Ready" && c.status == "True")`},
	}
	if i %= len(kinds) + 1; i < len(kinds) {
		return v1alpha1.Signal{Name: "signal", SignalSource: kinds[i]}
	}
	cold := v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "cold"}}
	return v1alpha1.Signal{Name: "signal", AnyOf: []v1alpha1.NamedSource{{Name: "cold", SignalSource: cold}, {Name: "agent", SignalSource: agent}}}
}

func mixedName(i int) string { return fmt.Sprintf("agent-%02d", i) }

// mixedGates returns this number of gates, with signals of all kinds, that select every
// node of the pool and also read their signals while they are open.
func mixedGates(t testing.TB, number int) []gate.Gate {
	t.Helper()
	gates := make([]gate.Gate, number)
	for i := range gates {
		ng := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: mixedName(i), CreationTimestamp: metav1.NewTime(epoch.Add(-2 * day))}}
		ng.Spec = v1alpha1.NodeGateSpec{
			NodeSelector:  v1alpha1.LabelSelector{MatchLabels: map[string]string{"pool": "gpu"}},
			Taint:         v1alpha1.Taint{Key: mixedName(i) + ".example/not-ready", Effect: corev1.TaintEffectNoSchedule},
			OpenWhen:      []v1alpha1.Signal{mixedSignal(i)},
			ReclosePolicy: v1alpha1.RecloseOnRegression,
		}
		g, err := Compile(ng, v1alpha1.SourceCRD)
		if err != nil {
			t.Fatal(err)
		}
		g.Accepted = true
		gates[i] = g
	}
	return gates
}

// mixedNode returns a node of the pool on which all signals hold or, if fit is false, a
// new node on which none holds.
func mixedNode(gates []gate.Gate, fit bool) *gate.Facts {
	w := aNode()
	n := &w.facts.Node
	n.UID, n.Taints, n.Records = "uid-n1", nil, make(map[string]string)
	for i := range gates {
		with(mixedName(i))(w)
		w.facts.Pods[runsOf(query(mixedName(i)))] = nil
		w.facts.Transient.GateKeys[gates[i].Taint.Key] = true
	}
	w.facts.CSINode.Observed = true
	w.facts.ResourceSlices = map[string][]gate.ResourceSlice{"dra.example": nil}
	w.facts.Objects = map[gate.ObjectQuery][]gate.Object{ciliumQuery: nil}
	n.Conditions = nil
	status := corev1.ConditionTrue
	for _, kind := range []string{"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"} {
		if fit {
			status = corev1.ConditionFalse
		}
		n.Conditions = append(n.Conditions, gate.Condition{Type: kind, Status: status, Transition: epoch.Add(-time.Hour)})
	}
	n.Conditions = append(n.Conditions, gate.Condition{Type: "Ready", Status: corev1.ConditionTrue, Transition: epoch.Add(-time.Hour)})
	if !fit {
		n.Created = epoch.Add(-time.Second)
		return &w.facts
	}
	n.Labels["warm"] = ""
	n.Annotations = map[string]string{"warmed.example/at": "12:00"}
	n.Allocatable = map[string]apiresource.Quantity{"gpu.example/gpu": apiresource.MustParse("8")}
	w.facts.Objects[ciliumQuery] = []gate.Object{{Name: "n1", State: gate.Holds}}
	w.facts.CSINode.Owner, w.facts.CSINode.Drivers = n.UID, map[string]bool{"csi.example": true}
	w.facts.ResourceSlices["dra.example"] = []gate.ResourceSlice{{Name: "s", Owner: n.UID, Pool: "p", Generation: 1, Count: 1}}
	for i := range gates {
		running(mixedName(i), func(p *gate.Pod) { p.UID = types.UID(mixedName(i)) })(w)
		done := gate.Pod{Name: "kube-system/job", Finished: true, Run: gate.Run{Boot: "a", Succeeded: true, Ended: epoch.Add(-time.Minute)}, Created: epoch.Add(-time.Minute)}
		w.facts.Pods[runsOf(query(mixedName(i)))] = []gate.Pod{done}
	}
	return &w.facts
}

// addRecords adds the records and taints of gates in this state to the node.
func addRecords(f *gate.Facts, state string, gates ...gate.Gate) {
	for i := range gates {
		g := &gates[i]
		r := gate.Record{
			State: state, Since: epoch.Add(-30 * time.Minute), Reason: v1alpha1.ReasonSignalsHold,
			Boot: f.Node.BootID, Taint: gate.TaintText(g.Taint), Source: g.Source,
		}
		if state == v1alpha1.StateClosed {
			r.Reason = v1alpha1.ReasonBirth
			f.Node.Taints = append(f.Node.Taints, g.Taint.Core())
		}
		f.Node.Records[g.Name] = r.String()
	}
}

// rememberRuns adds to the records of open gates what they remember.
func rememberRuns(f *gate.Facts, gates []gate.Gate) {
	for name, raw := range gate.Decide(gates, f, epoch).Records {
		f.Node.Records[name] = raw
	}
}

// mixedMoments returns moments of a node with 50 gates.
func mixedMoments(t testing.TB) (gates []gate.Gate, moments map[string]*gate.Facts) {
	gates = mixedGates(t, 50)
	moments = map[string]*gate.Facts{}
	for name, closed := range map[string]int{"steady": 0, "opening one": 1, "opening all": len(gates)} {
		f := mixedNode(gates, true)
		addRecords(f, v1alpha1.StateClosed, gates[:closed]...)
		addRecords(f, v1alpha1.StateOpen, gates[closed:]...)
		rememberRuns(f, gates[closed:])
		moments[name] = f
	}
	moments["birth"] = mixedNode(gates, false)
	waiting := mixedNode(gates, false)
	addRecords(waiting, v1alpha1.StateClosed, gates...)
	for name, raw := range waiting.Node.Records {
		r, _ := gate.ParseRecord(raw)
		r.Since = waiting.Node.Created
		waiting.Node.Records[name] = r.String()
	}
	moments["waiting"] = waiting
	return gates, moments
}

// The moments are those that the benchmark is named after.
func TestMixedMoments(t *testing.T) {
	gates, moments := mixedMoments(t)
	type outcome struct {
		changes                bool
		taints, opened, closed int
	}
	for name, want := range map[string]outcome{
		"steady":      {},
		"opening one": {changes: true, opened: 1},
		"opening all": {changes: true, opened: len(gates)},
		"waiting":     {taints: len(gates)},
		"birth":       {changes: true, taints: len(gates), closed: len(gates)},
	} {
		d := gate.Decide(gates, moments[name], epoch)
		got := outcome{changes: d.Changes, taints: len(d.Taints)}
		for i := range d.Verdicts {
			v := &d.Verdicts[i]
			if len(v.Readings) != 1 {
				t.Errorf("%s: the signal of %s was not read", name, v.Gate)
			}
			if v.Opened() {
				got.opened++
			}
			if v.Closed() {
				got.closed++
			}
		}
		if got != want {
			t.Errorf("%s: got %+v, want %+v", name, got, want)
		}
	}
}

// No kind of signal needs heartbeats, except with maxHeartbeatAgeSeconds.
func TestSignalsNeedNoHeartbeats(t *testing.T) {
	gates := mixedGates(t, 50)
	sets := mixedNode(gates, true).DaemonSets
	for i := range gates {
		if gates[i].Needs(sets).Heartbeats {
			t.Errorf("%s, waiting for %T, needs heartbeats", gates[i].Name, gates[i].Signals[0].Signal)
		}
	}
	aged := mustCompile(t, v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: "Ready", Status: "True", MaxHeartbeatAgeSeconds: new(int32(60))}})
	if !aged.Needs(sets).Heartbeats {
		t.Error("maxHeartbeatAgeSeconds does not need heartbeats")
	}
}

// A decision is made for every event, and collecting its garbage delays all others.
func TestDecideAllocatesLittle(t *testing.T) {
	gates, moments := mixedMoments(t)
	for _, name := range []string{"steady", "waiting", "opening one"} {
		least := math.Inf(1) // the minimum of several runs, because pooled memory may have been collected
		for range 20 {
			least = min(least, testing.AllocsPerRun(1, func() { gate.Decide(gates, moments[name], epoch) }))
		}
		if least > 100 {
			t.Errorf("%s: %v allocations, want at most 100", name, least)
		}
	}
}

// BenchmarkDecide measures one decision about a node with 50 gates, whose signals are
// of all kinds and are all read.
func BenchmarkDecide(b *testing.B) {
	gates, moments := mixedMoments(b)
	for _, name := range []string{"steady", "waiting", "opening one", "opening all", "birth"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				gate.Decide(gates, moments[name], epoch)
			}
		})
	}
}
