// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// life is a sequence of events on a node with two observers, which both receive every
// change. One decides about all gates each time, the other only about those that read
// what has changed, if that is allowed.
type life struct {
	gates []gate.Gate
	parts *gate.Parts
	now   time.Time
	// facts are the facts that both have, except for what they remember.
	facts gate.Facts
	// budget reports whether requests are granted.
	budget    bool
	all, some observer
	pending   gate.Change
	narrow    int
}

// observer is the memory of one of the two.
type observer struct {
	lost   map[string][]gate.Lost
	steady map[string]gate.Steady
	// settled is true after a decision that left nothing to do, until the given time.
	settled bool
	until   time.Time
}

// drawKind draws a signal that reads the aspects that change in a life.
func drawKind(t *rapid.T, name string) v1alpha1.SignalSource {
	agents := []string{"a", "b"}
	agent := rapid.SampledFrom(agents).Draw(t, name+" agent")
	conditions := rapid.SampledFrom([]string{"X", "Y", "Ready"}).Draw(t, name+" condition")
	apps := v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": agent}}
	return rapid.SampledFrom([]v1alpha1.SignalSource{
		{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: agent}},
		{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: agent, MinReadySeconds: 30}},
		{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"kube-system"}, Selector: v1alpha1.LabelSelector{}}},
		{Pods: &v1alpha1.PodsSignal{Namespace: "kube-system", Selector: apps, Require: v1alpha1.RequireAll}},
		{Completed: &v1alpha1.CompletedSignal{Namespace: "kube-system", Selector: v1alpha1.EqualitySelector{MatchLabels: apps.MatchLabels}}},
		{Completed: &v1alpha1.CompletedSignal{Namespace: "kube-system", Selector: v1alpha1.EqualitySelector{MatchLabels: apps.MatchLabels}, MaxAgeSeconds: new(int32(60))}},
		{Condition: &v1alpha1.ConditionSignal{Type: conditions, Status: "True"}},
		{Condition: &v1alpha1.ConditionSignal{Type: conditions, Status: "True", ForSeconds: 60}},
		{Condition: &v1alpha1.ConditionSignal{Type: conditions, Status: "True", MaxHeartbeatAgeSeconds: new(int32(100))}},
		{Condition: &v1alpha1.ConditionSignal{TypePattern: "X|Y", StatusPattern: "True|Maybe"}},
		{Label: &v1alpha1.KeyValueSignal{Key: "l"}},
		{Annotation: &v1alpha1.KeyValueSignal{Key: "k"}},
		{CSIDriver: &v1alpha1.CSIDriverSignal{Name: "csi.example"}},
		{Resource: &v1alpha1.ResourceSignal{Name: "gpu.example/gpu"}},
		{ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: "dra.example"}},
		fourDevices,
		{Object: ciliumNode.Object},
		{Expression: `conditions.exists(c, c.type == "X" && c.status == "True")`},
		{Expression: `"k" in annotations && nodeInfo.kernelVersion == "6"`},
		{Expression: `!taints.exists(t, t.key.startsWith("k2."))`},
		{Expression: `allocatable[?"gpu.example/gpu"].hasValue()`},
	}).Draw(t, name+" kind")
}

func drawSpec(t *rapid.T, name string) v1alpha1.NodeGateSpec {
	taint := func(what string) v1alpha1.Taint {
		return v1alpha1.Taint{Key: rapid.SampledFrom([]string{"k1.example/t", "k2.example/t", "k3.example/t", "k4.example/t", "karpenter.sh/unregistered"}).Draw(t, name+what), Effect: corev1.TaintEffectNoSchedule}
	}
	signals := []v1alpha1.Signal{{Name: "one", SignalSource: drawKind(t, name)}}
	if rapid.IntRange(0, 3).Draw(t, name+" has alternatives") == 0 {
		signals = append(signals, v1alpha1.Signal{Name: "any", AnyOf: []v1alpha1.NamedSource{
			{Name: "this", SignalSource: drawKind(t, name+" this")}, {Name: "that", SignalSource: drawKind(t, name+" that")},
		}})
	}
	spec := v1alpha1.NodeGateSpec{Taint: taint(" taint"), Mode: rapid.SampledFrom([]v1alpha1.Mode{"", "", "", v1alpha1.ModePaused}).Draw(t, name+" mode")}
	wait := func(what string) int32 { return rapid.SampledFrom([]int32{0, 0, 45}).Draw(t, name+what) }
	spec.Timing.OpenAfterSeconds = wait(" soak")
	if rapid.IntRange(0, 2).Draw(t, name+" follows") == 0 {
		spec.CloseWhen = signals
		spec.Reopen = rapid.SampledFrom([]v1alpha1.Reopen{v1alpha1.ReopenAutomatic, v1alpha1.ReopenManual}).Draw(t, name+" reopens")
		return spec
	}
	spec.OpenWhen = signals
	if rapid.Bool().Draw(t, name+" recloses with another") {
		spec.RecloseTaint = new(taint(" reclose taint"))
	}
	spec.ReclosePolicy = rapid.SampledFrom([]v1alpha1.ReclosePolicy{v1alpha1.RecloseNever, v1alpha1.RecloseOnReboot, v1alpha1.RecloseOnRegression, v1alpha1.RecloseOnRegression}).Draw(t, name+" recloses")
	spec.ExistingNodes = rapid.SampledFrom([]v1alpha1.ExistingNodes{v1alpha1.ExistingIgnore, v1alpha1.ExistingAdopt, v1alpha1.ExistingClose}).Draw(t, name+" existing")
	spec.Timing.MinClosedSeconds, spec.Timing.CloseAfterSeconds = wait(" min"), new(wait(" damping"))
	if rapid.IntRange(0, 3).Draw(t, name+" has a deadline") == 0 {
		spec.Deadline = &v1alpha1.Deadline{ReadySeconds: new(int32(200)), PodMissingSeconds: new(int32(100)), Action: rapid.SampledFrom([]v1alpha1.DeadlineAction{v1alpha1.DeadlineOpen, v1alpha1.DeadlineKeepClosed}).Draw(t, name+" then")}
	}
	return spec
}

func newLife(t *rapid.T) *life {
	w := aNode(with("a"), with("b", tolerating("k1.example/t")), nodeCreated(time.Duration(rapid.SampledFrom([]int{1, 10000}).Draw(t, "age"))*time.Second))
	n := &w.facts.Node
	n.UID, n.Taints, n.Records, n.Annotations = "uid-n1", nil, map[string]string{}, map[string]string{}
	n.Conditions = []gate.Condition{{Type: "X", Status: "False"}, {Type: "Ready", Status: "True"}, {Type: "Y", Status: "True"}}
	n.Info = map[string]string{"kernelVersion": "5"}
	w.facts.CSINode.Observed = true
	w.facts.ResourceSlices = map[string][]gate.ResourceSlice{"dra.example": nil}
	w.facts.CompleteSources = map[string]bool{v1alpha1.SourceCRD: true}
	delete(w.facts.Pods, query("agent"))
	l := &life{now: epoch, facts: w.facts, budget: true, pending: gate.Everything()}
	for i := range rapid.IntRange(2, 6).Draw(t, "gates") {
		ng := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("g%d", i), CreationTimestamp: metav1.NewTime(epoch.Add(-time.Hour))}}
		ng.Spec = drawSpec(t, ng.Name)
		g, err := Compile(ng, v1alpha1.SourceCRD)
		if err != nil {
			t.Fatal(err)
		}
		l.gates = append(l.gates, g)
	}
	l.accept(t)
	l.parts = gate.Divide(l.gates, l.facts.DaemonSets)
	return l
}

// accept determines which gates are in force, and which keys other gates ignore, as package
// gateset does. Some gates may have closed before, even if they are no longer in force.
func (l *life) accept(t *rapid.T) {
	if rapid.IntRange(0, 3).Draw(t, "a key is not allowed") == 0 {
		l.facts.Allowed = gate.AllowedTaints{}
		for _, key := range []string{"k1.example/t", "k3.example/t", "k4.example/t"} {
			l.facts.Allowed[gate.TaintID{Key: key, Effect: corev1.TaintEffectNoSchedule}] = true
		}
	}
	accepted := gate.Accept(l.gates, gate.KeyPolicy{Allowed: l.facts.Allowed})
	keys := map[string]bool{}
	for i := range l.gates {
		g := &l.gates[i]
		a := accepted[g.Name]
		g.Accepted = a.Accepted
		for _, taint := range g.Taints() {
			if a.Reason != v1alpha1.ReasonTaintKeyNotAllowed && l.facts.Allowed.Allows(taint) {
				keys[taint.Key] = true
			}
		}
		if rapid.IntRange(0, 3).Draw(t, g.Name+" has closed before") == 0 {
			had := l.facts.Node.Taints
			addRecords(&l.facts, v1alpha1.StateClosed, *g)
			if slices.ContainsFunc(had, func(t corev1.Taint) bool { return t.Key == g.Taint.Key }) {
				l.facts.Node.Taints = had // another gate has the same taint
			}
		}
	}
	l.facts.Transient.GateKeys = keys
}

func (l *life) actions() map[string]func(*rapid.T) {
	n := &l.facts.Node
	changed := func(a ...gate.Aspect) { l.pending = l.pending.And(gate.ChangeOf(a...)) }
	everything := func() { l.pending = gate.Everything() }
	return map[string]func(*rapid.T){
		"condition": func(t *rapid.T) {
			i := rapid.SampledFrom([]int{0, 2}).Draw(t, "which")
			status := rapid.SampledFrom([]corev1.ConditionStatus{"True", "False", "Unknown", "Maybe"}).Draw(t, "status")
			n.Conditions = slices.Clone(n.Conditions)
			n.Conditions[i] = gate.Condition{Type: n.Conditions[i].Type, Status: status, Transition: l.now, Heartbeat: l.now}
			changed(gate.Aspect{Kind: gate.AspectCondition, Name: n.Conditions[i].Type}, gate.Aspect{Kind: gate.AspectHeartbeats})
		},
		"heartbeat": func(*rapid.T) {
			n.Conditions = slices.Clone(n.Conditions)
			for i := range n.Conditions {
				n.Conditions[i].Heartbeat = l.now
			}
			changed(gate.Aspect{Kind: gate.AspectHeartbeats})
		},
		"annotation": func(t *rapid.T) {
			n.Annotations = toggled(n.Annotations, "k", "v")
			changed(gate.Aspect{Kind: gate.AspectAnnotation, Name: "k"})
		},
		"resource": func(t *rapid.T) {
			n.Allocatable = toggled(n.Allocatable, "gpu.example/gpu", apiresource.MustParse("1"))
			changed(gate.Aspect{Kind: gate.AspectAllocatable, Name: "gpu.example/gpu"})
		},
		"kernel": func(t *rapid.T) {
			n.Info = map[string]string{"kernelVersion": rapid.SampledFrom([]string{"5", "6"}).Draw(t, "version")}
			changed(gate.Aspect{Kind: gate.AspectNodeInfo, Name: "kernelVersion"})
		},
		"pod": func(t *rapid.T) {
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "of")
			l.facts.Pods = maps.Clone(l.facts.Pods)
			l.facts.Pods[query(name)] = drawPods(t, name, l.now)
			changed(gate.Aspect{Kind: gate.AspectPods, Pods: query(name)})
		},
		"run": func(t *rapid.T) {
			of := runsOf(query(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "of")))
			l.facts.Pods = maps.Clone(l.facts.Pods)
			l.facts.Pods[of] = drawRuns(t, n.BootID, l.now)
			changed(gate.Aspect{Kind: gate.AspectPods, Pods: of})
		},
		"CSI driver": func(*rapid.T) {
			l.facts.CSINode.Owner, l.facts.CSINode.Drivers = n.UID, toggled(l.facts.CSINode.Drivers, "csi.example", true)
			changed(gate.Aspect{Kind: gate.AspectCSINode})
		},
		"slice": func(*rapid.T) {
			slice := gate.ResourceSlice{Name: "s", Owner: n.UID, Pool: "p", Generation: 1, Count: 1}
			l.facts.ResourceSlices = map[string][]gate.ResourceSlice{"dra.example": nil}
			if l.now.Second()%2 == 0 {
				l.facts.ResourceSlices["dra.example"] = []gate.ResourceSlice{slice}
			}
			changed(gate.Aspect{Kind: gate.AspectResourceSlices, Name: "dra.example"})
		},
		"devices": func(t *rapid.T) {
			names := rapid.SampledFrom([]string{"", "a,b", "a,b,c,d"}).Draw(t, "devices")
			s := holding(names)
			s.Owner = n.UID
			l.facts.Devices = map[gate.DeviceQuery][]gate.DeviceSlice{fourQuery: {s}}
			changed(fourQuery.Aspect())
		},
		"device taint rule": func(t *rapid.T) {
			rules := rapid.SampledFrom([]*gate.DeviceTaintRules{nil, {}, {{Name: "r", Device: "a", Taint: "t"}}}).Draw(t, "rules")
			l.facts.DeviceTaintRules = rules
			changed(fourQuery.Aspect())
		},
		"object": func(t *rapid.T) {
			state := rapid.SampledFrom([]gate.State{gate.Holds, gate.NotYet, gate.Unknown}).Draw(t, "state")
			l.facts.Objects = map[gate.ObjectQuery][]gate.Object{ciliumQuery: {{Name: "n1", State: state}}}
			changed(ciliumQuery.Aspect())
		},
		"taint": func(t *rapid.T) {
			key := rapid.SampledFrom([]string{"k1.example/t", "k2.example/t", "k3.example/t", "x.example/t", "karpenter.sh/unregistered"}).Draw(t, "key")
			is := func(t corev1.Taint) bool { return t.Key == key }
			if slices.ContainsFunc(n.Taints, is) {
				n.Taints = slices.DeleteFunc(slices.Clone(n.Taints), is)
			} else {
				n.Taints = append(slices.Clip(n.Taints), corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
			}
			changed(gate.Aspect{Kind: gate.AspectTaint, Name: key})
		},
		"record": func(t *rapid.T) {
			name := rapid.SampledFrom([]string{"g0", "g1", "g2", "unknown"}).Draw(t, "of")
			n.Records = maps.Clone(n.Records)
			if raw := rapid.SampledFrom([]string{"", "x"}).Draw(t, "raw"); raw == "" {
				delete(n.Records, name)
			} else {
				n.Records[name] = raw
			}
			changed(gate.Aspect{Kind: gate.AspectRecord, Name: name})
		},
		"label": func(*rapid.T) { n.Labels = toggled(n.Labels, "l", ""); everything() },
		"ready": func(t *rapid.T) {
			n.Conditions = slices.Clone(n.Conditions)
			n.Conditions[1].Status = rapid.SampledFrom([]corev1.ConditionStatus{"True", "True", "False", "Unknown"}).Draw(t, "status")
			n.Conditions[1].Transition = l.now
			everything()
		},
		"boot": func(t *rapid.T) { n.BootID += "b"; everything() },
		"override": func(t *rapid.T) {
			if n.Overrides != nil {
				n.Overrides = nil
			} else {
				n.Overrides = map[string]string{"g0": gate.Override{State: "Open", Until: l.now.Add(time.Hour), Reason: "so", UID: n.UID}.String()}
			}
			everything()
		},
		"budget": func(*rapid.T) { l.budget = !l.budget; everything() },
		"time":   func(t *rapid.T) { l.pass(t, time.Duration(rapid.IntRange(1, 70).Draw(t, "seconds"))*time.Second) },
	}
}

func drawPods(t *rapid.T, name string, now time.Time) []gate.Pod {
	w := aNode()
	change := func(p *gate.Pod) {
		p.Ready, p.ReadySince, p.Created = rapid.Bool().Draw(t, "ready"), now, now.Add(-time.Second)
		p.Incarnation = gate.Incarnation(rapid.IntRange(1, 3).Draw(t, "containers"))
		p.Terminating = rapid.IntRange(0, 4).Draw(t, "terminating") == 0
	}
	for range rapid.IntRange(0, 2).Draw(t, "pods") {
		running(name, change)(w)
	}
	return w.facts.Pods[query(name)]
}

// drawRuns draws pods that run once.
func drawRuns(t *rapid.T, boot string, now time.Time) []gate.Pod {
	pods := make([]gate.Pod, rapid.IntRange(0, 2).Draw(t, "pods"))
	for i := range pods {
		pods[i] = gate.Pod{
			Name: fmt.Sprintf("kube-system/job-%d", i), Created: now.Add(-time.Minute), Finished: rapid.Bool().Draw(t, "finished"),
			Incarnation: gate.Incarnation(rapid.IntRange(10, 13).Draw(t, "containers")),
			Run:         gate.Run{Started: now.Add(-time.Duration(rapid.IntRange(0, 30).Draw(t, "started")) * time.Second)},
		}
		if pods[i].Finished {
			pods[i].Run.Succeeded, pods[i].Run.Ended = rapid.Bool().Draw(t, "succeeded"), now
		}
		pods[i].Run.Boot = rapid.SampledFrom([]string{"", "", boot, "other"}).Draw(t, "boot")
	}
	return pods
}

// toggled returns the map with the key added or removed.
func toggled[M ~map[string]V, V any](m M, key string, value V) M {
	out := M{key: value}
	maps.Copy(out, m)
	if _, there := m[key]; there {
		delete(out, key)
	}
	return out
}
