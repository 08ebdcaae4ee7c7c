// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/gateset"
)

var now = time.Date(2026, 3, 1, 3, 0, 0, 0, time.UTC)

// drawGate returns a gate that opens or closes by a label.
func drawGate(t *rapid.T, name string) v1alpha1.NodeGate {
	g := v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour))}}
	s := &g.Spec
	s.Taint = v1alpha1.Taint{Key: "example.com/" + rapid.SampledFrom([]string{"a", "b"}).Draw(t, "key"), Effect: corev1.TaintEffectNoSchedule}
	if rapid.Bool().Draw(t, "narrow") {
		s.NodeSelector.MatchLabels = map[string]string{"pool": "p"}
	}
	s.Mode = rapid.SampledFrom([]v1alpha1.Mode{v1alpha1.ModeEnforce, v1alpha1.ModeEnforce, v1alpha1.ModeEnforce, v1alpha1.ModeDryRun, v1alpha1.ModePaused}).Draw(t, "mode")
	s.Budget.MaxReclosed = new(rapid.SampledFrom([]intstr.IntOrString{intstr.FromInt32(0), intstr.FromInt32(1), intstr.FromString("50%"), intstr.FromString("100%")}).Draw(t, "budget"))
	signals := []v1alpha1.Signal{{Name: "fit", SignalSource: v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "fit"}}}}
	if rapid.IntRange(0, 3).Draw(t, "follows") == 0 {
		s.CloseWhen = signals
		return g
	}
	s.OpenWhen = signals
	s.ExistingNodes = rapid.SampledFrom([]v1alpha1.ExistingNodes{v1alpha1.ExistingIgnore, v1alpha1.ExistingAdopt, v1alpha1.ExistingClose, v1alpha1.ExistingCloseIfIdle}).Draw(t, "existing")
	s.ReclosePolicy = rapid.SampledFrom([]v1alpha1.ReclosePolicy{v1alpha1.RecloseNever, v1alpha1.RecloseOnReboot}).Draw(t, "reclose")
	return g
}

// drawWorld returns a cluster in which the controller has nothing left to do for these
// gates.
func drawWorld(t *rapid.T, declared []v1alpha1.NodeGate) *World {
	w := &World{Declared: declared, Now: now, Pods: map[string]*gate.PodList{}}
	for i := range rapid.IntRange(0, 8).Draw(t, "nodes") {
		n := gate.Node{
			Name: fmt.Sprintf("n%d", i), UID: "uid", BootID: "b",
			Created: now.Add(-rapid.SampledFrom([]time.Duration{time.Minute, 30 * time.Minute, 2 * time.Hour}).Draw(t, "age")),
			Labels:  map[string]string{corev1.LabelTopologyZone: rapid.SampledFrom([]string{"", "z"}).Draw(t, "zone")},
		}
		for _, label := range []string{"fit", "pool"} {
			if rapid.Bool().Draw(t, label) {
				n.Labels[label] = map[string]string{"fit": "", "pool": "p"}[label]
			}
		}
		if rapid.Bool().Draw(t, "busy") {
			w.Pods[n.Name] = &gate.PodList{At: now.Add(time.Hour), Pods: []gate.BoundPod{{Namespace: "web", Name: "shop"}}}
		}
		status := rapid.SampledFrom([]corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionTrue, corev1.ConditionUnknown}).Draw(t, "ready")
		n.Conditions = []gate.Condition{{Type: string(corev1.NodeReady), Status: status, Transition: now.Add(-time.Minute)}}
		w.Nodes = append(w.Nodes, gate.Facts{Node: n, DaemonSets: &gate.DaemonSets{}})
	}
	run(w, declared)
	return w
}

// run applies the controller's decisions to the nodes of a world, one at a time, until
// there is nothing left to do: first those that require no budget, and then, in the order
// of node names, those that do. Before each, budgets are counted from the records.
func run(w *World, declared []v1alpha1.NodeGate) {
	set := w.compile(declared)
	for _, budgets := range []bool{false, true} {
		for again := true; again; {
			again = false
			for i := range w.Nodes {
				again = step(w, set, &w.Nodes[i], budgets) || again
			}
		}
	}
}

func step(w *World, set *gateset.Set, f *gate.Facts, budgets bool) bool {
	d := w.decide(set, *f, nil)
	granted := make(map[string]bool)
	for _, v := range d.Verdicts {
		room := budgets && v.Wants == gate.WantBudget && closedIn(w, v.Gate, f.Node.Zone()) < most(w, set, v.Gate, f.Node.Zone())
		if !v.DryRun && (v.Wants == gate.WantPace || room) {
			granted[v.Gate] = true
		}
	}
	d = w.decide(set, *f, granted)
	write(f, &d)
	return d.Changes
}

func closedIn(w *World, name, zone string) (n int) {
	for i := range w.Nodes {
		r, err := gate.ParseRecord(w.Nodes[i].Node.Records[name])
		if err == nil && w.Nodes[i].Node.Zone() == zone && r.State == v1alpha1.StateClosed && gate.IsBudgeted(r.Reason) {
			n++
		}
	}
	return n
}

func most(w *World, set *gateset.Set, name, zone string) int {
	members := 0
	g, _ := set.Gate(name)
	for i := range w.Nodes {
		if n := &w.Nodes[i].Node; n.Zone() == zone && g.Selector.Matches(n.Labels) {
			members++
		}
	}
	return gate.MaxReclosed(set.Declared[name].Spec.Budget.MaxReclosed, members)
}

func write(f *gate.Facts, d *gate.Decision) {
	if !d.Changes {
		return
	}
	f.Node.Taints = d.Taints
	records := maps.Clone(f.Node.Records)
	if records == nil {
		records = make(map[string]string)
	}
	for name, raw := range d.Records {
		if records[name] = raw; raw == "" {
			delete(records, name)
		}
	}
	f.Node.Records = records
}

// states returns the states of a gate on nodes according to their records.
func states(w *World, name string) map[string]string {
	out := make(map[string]string)
	for i := range w.Nodes {
		if r, err := gate.ParseRecord(w.Nodes[i].Node.Records[name]); err == nil {
			out[w.Nodes[i].Node.Name] = r.State
		}
	}
	return out
}

// statesOn returns the states of gates on one node.
func statesOn(n gate.Node) map[string]string {
	out := make(map[string]string)
	for name, raw := range n.Records {
		if r, err := gate.ParseRecord(raw); err == nil {
			out[name] = r.State
		}
	}
	return out
}

func clone(w *World) *World {
	c := *w
	c.Declared, c.Nodes = slices.Clone(w.Declared), slices.Clone(w.Nodes)
	for i := range c.Nodes {
		n := &c.Nodes[i].Node
		n.Taints, n.Records = slices.Clone(n.Taints), maps.Clone(n.Records)
	}
	return &c
}

// The predicted effect on each node is what the controller does to it, one node after
// the other.
func TestPreviewMatchesTheController(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		declared := []v1alpha1.NodeGate{drawGate(t, "one"), drawGate(t, "two")}[:rapid.IntRange(0, 2).Draw(t, "gates")]
		w := drawWorld(t, declared)
		before := clone(w)
		c := Change{Apply: []v1alpha1.NodeGate{drawGate(t, rapid.SampledFrom([]string{"one", "three"}).Draw(t, "applied"))}}
		if len(declared) > 1 && rapid.Bool().Draw(t, "delete") {
			c = Change{Delete: []string{"two"}}
		}
		p := Of(w, c)
		if !reflect.DeepEqual(before, w) {
			t.Fatal("the world was modified")
		}
		predictions := make(map[string]map[string]string)
		acts := false
		for _, g := range p.Gates {
			predictions[g.Gate] = make(map[string]string)
			for _, group := range g.Groups {
				acts = acts || group.Acts()
				for _, node := range group.Nodes {
					if first, twice := predictions[g.Gate][node]; twice {
						t.Fatalf("gate %s: node %s is in two groups: %s, %s", g.Gate, node, first, group.What)
					}
					if predictions[g.Gate][node] = stateOf(group.What); group.DryRun {
						predictions[g.Gate][node] = ""
					}
				}
			}
			for _, z := range g.Budget {
				if z.Closes > 0 && z.Closed+z.Closes > z.MaxReclosed {
					t.Fatalf("gate %s closes more than its budget allows: %+v", g.Gate, z)
				}
			}
		}
		if acts != p.Changes {
			t.Fatalf("changes is %v, but groups act: %v", p.Changes, acts)
		}
		after, _ := w.changed(c)
		run(w, after)
		checkStates(t, w, c, after, predictions)
		for i := range w.Nodes {
			was, is := before.Nodes[i].Node, w.Nodes[i].Node
			if !p.Changes && (!slices.Equal(was.Taints, is.Taints) || !maps.Equal(statesOn(was), statesOn(is))) {
				t.Fatalf("no change was predicted, but node %s changed from %v %v to %v %v", is.Name, was.Taints, was.Records, is.Taints, is.Records)
			}
		}
	})
}

// checkStates compares the predicted states of the gates of a change with the actual
// ones according to records. An open closeWhen gate has no record.
func checkStates(t *rapid.T, w *World, c Change, after []v1alpha1.NodeGate, predictions map[string]map[string]string) {
	for i := range c.Apply {
		name := c.Apply[i].Name
		is := states(w, name)
		at := slices.IndexFunc(after, func(g v1alpha1.NodeGate) bool { return g.Name == name })
		for j := range w.Nodes {
			node := w.Nodes[j].Node.Name
			want := is[node]
			predicted := predictions[name][node]
			if predicted == notClosed {
				if want == v1alpha1.StateClosed {
					t.Fatalf("gate %s on node %s closed unexpectedly", name, node)
				}
				continue
			}
			if after[at].Spec.Follows() && predicted == v1alpha1.StateOpen {
				predicted = ""
			}
			if after[at].Spec.Follows() && want == v1alpha1.StateOpen {
				want = ""
			}
			if predicted != want {
				t.Fatalf("gate %s on node %s: predicted %q, actual %q\n%s", name, node, predicted, want, w.Nodes[j].Node.Records[name])
			}
		}
	}
	for _, name := range c.Delete {
		if is := states(w, name); len(is) > 0 {
			t.Fatalf("the deleted gate %s still has states: %v", name, is)
		}
	}
}

const notClosed = "open, or no member"

// stateOf returns the final state of the nodes of a group.
func stateOf(what What) string {
	switch what {
	case Closes, StaysClosed, Retaints:
		return v1alpha1.StateClosed
	case Joins, StaysOpen, Lapses:
		return v1alpha1.StateOpen
	case Waits, Opens: // the node may be a member afterwards or not
		return notClosed
	}
	return ""
}

// What happens to nodes without a change is not attributed to it: applying unchanged
// gates changes nothing, and a change does not affect unrelated gates, even while the
// controller still has to close or adopt nodes.
func TestUnchangedGatesChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		declared := []v1alpha1.NodeGate{drawGate(t, "one"), drawGate(t, "two")}
		declared[1].Spec.Taint.Key = "example.com/c"
		w := drawWorld(t, nil) // the controller has not acted on the gates yet
		w.Declared = declared
		if p := Of(w, Change{Apply: declared}); p.Changes {
			t.Errorf("applying unchanged gates is a change: %+v", p.Gates)
		}
		for _, g := range Of(w, Change{Delete: []string{"one"}}).Gates {
			if g.Gate != "one" {
				t.Errorf("gate %s: %s because another gate is deleted: %+v", g.Gate, g.Action, g.Groups)
			}
		}
	})
}

// A changed gate keeps its creation time, and a new gate is created now: this determines
// which nodes are new to it.
func TestGateCreationTimes(t *testing.T) {
	created := metav1.NewTime(now.Add(-time.Hour))
	old := v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: "old", UID: "u", CreationTimestamp: created}}
	w := &World{Declared: []v1alpha1.NodeGate{old, {ObjectMeta: metav1.ObjectMeta{Name: "gone"}}, {ObjectMeta: metav1.ObjectMeta{Name: "same"}}}, Now: now}
	changed := v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: "old"}}
	changed.Spec.Taint.Key = "example.com/a"
	after, actions := w.changed(Change{
		Apply:  []v1alpha1.NodeGate{changed, {ObjectMeta: metav1.ObjectMeta{Name: "new"}}, {ObjectMeta: metav1.ObjectMeta{Name: "same"}}},
		Delete: []string{"gone"},
	})
	var got []string
	for i := range after {
		g := &after[i]
		got = append(got, fmt.Sprintf("%s %s %q %v", g.Name, actions[g.Name], g.UID, g.CreationTimestamp.Equal(&created)))
	}
	want := []string{`old Modify "u" true`, `same Keep "" false`, `new Create "" false`}
	if !slices.Equal(got, want) || actions["gone"] != Delete || !after[2].CreationTimestamp.Time.Equal(now) {
		t.Errorf("creation times %q, %v, want %q", got, actions, want)
	}
	if w.Declared[0].Spec.Taint.Key != "" {
		t.Error("the world was modified")
	}
}

// A gate has closed for a reboot. After an edit of its signals, pods that were ready before count as
// little for the prediction as they do for the controller.
func TestSignalsAreEditedAfterAReboot(t *testing.T) {
	waitsFor := func(app string) v1alpha1.NodeGate {
		g := v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: "gate", UID: "u", CreationTimestamp: metav1.NewTime(now.Add(-2 * time.Hour))}}
		g.Spec.Taint = v1alpha1.Taint{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule}
		g.Spec.ReclosePolicy = v1alpha1.RecloseOnReboot
		pods := &v1alpha1.PodsSignal{Namespace: "ns", Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": app}}}
		g.Spec.OpenWhen = []v1alpha1.Signal{{Name: "agent", SignalSource: v1alpha1.SignalSource{Pods: pods}}}
		return g
	}
	pod := gate.Pod{UID: "b", Name: "b", Created: now.Add(-time.Hour), Ready: true, ReadySince: now.Add(-time.Hour), Incarnation: 2}
	f := gate.Facts{DaemonSets: &gate.DaemonSets{}, Pods: map[gate.PodQuery][]gate.Pod{
		{Namespace: "ns", Selector: "app=a"}: {}, {Namespace: "ns", Selector: "app=b"}: {pod},
	}}
	f.Node = gate.Node{
		Name: "n", UID: "uid", BootID: "b", Created: now.Add(-time.Hour), Taints: []corev1.Taint{{Key: "example.com/a", Effect: corev1.TaintEffectNoSchedule}},
		Conditions: []gate.Condition{{Type: string(corev1.NodeReady), Status: corev1.ConditionFalse, Transition: now.Add(-10 * time.Minute)}},
		Records: map[string]string{"gate": gate.Record{
			State: v1alpha1.StateClosed, Reason: v1alpha1.ReasonRebooted, Since: now.Add(-10 * time.Minute), Boot: "b", Digest: "1",
			Taint: "example.com/a:NoSchedule", Source: v1alpha1.SourceCRD,
		}.String()},
	}
	w := &World{Declared: []v1alpha1.NodeGate{waitsFor("a")}, Nodes: []gate.Facts{f}, Now: now}
	p := Of(w, Change{Apply: []v1alpha1.NodeGate{waitsFor("b")}})
	if got := p.Gates[0].Groups; len(got) != 1 || got[0].What != StaysClosed {
		t.Errorf("the node is predicted to be %v, want %s", got, StaysClosed)
	}
}

func BenchmarkPreview(b *testing.B) {
	w := &World{Now: now}
	for i := range 3 {
		w.Declared = append(w.Declared, benchGate(fmt.Sprintf("g%d", i)))
	}
	for i := range 5000 {
		n := gate.Node{Name: fmt.Sprintf("n%04d", i), UID: "u", Created: now.Add(-time.Hour), Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint(i % 3)}}
		w.Nodes = append(w.Nodes, gate.Facts{Node: n, DaemonSets: &gate.DaemonSets{}})
	}
	c := Change{Apply: []v1alpha1.NodeGate{benchGate("new")}}
	for b.Loop() {
		if p := Of(w, c); !p.Changes {
			b.Fatal("nothing would change")
		}
	}
}

func benchGate(name string) v1alpha1.NodeGate {
	g := v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	g.Spec.Taint = v1alpha1.Taint{Key: "example.com/" + name, Effect: corev1.TaintEffectNoSchedule}
	g.Spec.OpenWhen = []v1alpha1.Signal{{Name: "fit", SignalSource: v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "fit"}}}}
	g.Spec.ExistingNodes = v1alpha1.ExistingClose
	return g
}
