// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/cluster/packed"
	"github.com/nodegate/nodegate/internal/gate"
	signals "github.com/nodegate/nodegate/internal/signal"
)

// oracle is a fleet as whole objects, beside a feed that is told of everything that
// happens to them.
type oracle struct {
	feed  *Feed
	told  *recorder
	gates []gate.Gate
	now   time.Time

	version int
	nodes   map[string]*corev1.Node
	pods    map[string]*corev1.Pod
	sets    gate.DaemonSets
}

// Decisions that rest on what is kept are those that rest on whole objects; and who
// is told of what has changed is told of all of it, and of nothing else.
func TestDecisionsAreThoseOfWholeObjects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := newOracle(t)
		before := o.facts()
		t.Repeat(map[string]func(*rapid.T){
			"node changes":      o.nodeChanges,
			"node beats":        o.nodeBeats,
			"node goes":         o.nodeGoes,
			"nodes are read":    o.nodesAreRead,
			"pod changes":       o.podChanges,
			"pod goes":          o.podGoes,
			"pods are read":     o.podsAreRead,
			"time passes":       func(*rapid.T) { o.now = o.now.Add(time.Minute) },
			"dictionaries turn": o.dictionariesTurn,
			"": func(t *rapid.T) {
				after := o.facts()
				o.compare(t, before, after)
				before = after
			},
		})
	})
}

// everySignal is a signal of each kind.
var everySignal = []v1alpha1.SignalSource{
	{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "ns", Name: "agent", MinReadySeconds: 30}},
	{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"ns"}}},
	{Pods: &v1alpha1.PodsSignal{Namespace: "ns", Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}}},
	{Condition: &v1alpha1.ConditionSignal{Type: "Net", Status: "True", ForSeconds: 60, MaxHeartbeatAgeSeconds: ptr.To[int32](90)}},
	{Label: &v1alpha1.KeyValueSignal{Key: "pool", Value: ptr.To("x")}},
	{Annotation: &v1alpha1.KeyValueSignal{Key: "warm"}},
	{CSIDriver: &v1alpha1.CSIDriverSignal{Name: "csi"}},
	{Resource: &v1alpha1.ResourceSignal{Name: "gpu", AtLeast: new(resource.MustParse("1"))}},
	{ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: draDriver}},
	{Expression: `labels.pool == "x" && nodeInfo.kernelVersion.startsWith("6") && !taints.exists(t, t.key == "cordon")`},
}

func newOracle(t *rapid.T) *oracle {
	o := &oracle{told: &recorder{}, now: time.Unix(1_800_000_000, 0).UTC(), nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{}}
	o.sets = gate.DaemonSets{Observed: map[string]bool{"ns": true}}
	for _, name := range []string{"agent", "other"} {
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
		ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
		ds.Spec.Template.Labels = ds.Spec.Selector.MatchLabels
		o.sets.Items = append(o.sets.Items, newDaemonSet(ds).DaemonSet)
	}
	var needs gate.Needs
	for i, source := range everySignal {
		if !rapid.Bool().Draw(t, "gate") {
			continue
		}
		g := o.gate(t, i, source)
		needs.Add(g.Needs(&o.sets))
		o.gates = append(o.gates, g)
	}
	o.begin(needs)
	return o
}

func (o *oracle) gate(t *rapid.T, i int, source v1alpha1.SignalSource) gate.Gate {
	ng := &v1alpha1.NodeGate{ObjectMeta: metav1.ObjectMeta{Name: "g" + strconv.Itoa(i), CreationTimestamp: metav1.NewTime(o.now.Add(-time.Hour))}}
	ng.Spec.Taint = v1alpha1.Taint{Key: "t" + strconv.Itoa(i), Effect: corev1.TaintEffectNoSchedule}
	ng.Spec.ReclosePolicy = rapid.SampledFrom([]v1alpha1.ReclosePolicy{v1alpha1.RecloseNever, v1alpha1.RecloseOnReboot, v1alpha1.RecloseOnRegression}).Draw(t, "policy")
	named := []v1alpha1.Signal{{Name: "s", SignalSource: source}}
	if rapid.Bool().Draw(t, "follows") {
		ng.Spec.CloseWhen, ng.Spec.ReclosePolicy = named, ""
	} else {
		ng.Spec.OpenWhen = named
	}
	g, err := signals.Compile(ng, v1alpha1.SourceCRD)
	if err != nil {
		t.Fatal(err)
	}
	g.Accepted = true
	return g
}

// begin has the feed observe what is needed, as if it had read it.
func (o *oracle) begin(needs gate.Needs) {
	o.feed = newFeed(newFakeAPI().sources(), Options{Handler: o.told})
	o.feed.SetNeeds(needs)
	o.feed.nodes.read = o.feed.nodes.wanted
	nodes := &nodeFeed{running: o.feed.newRunning(nodesName)}
	nodes.live = true
	o.feed.nodeFeed.Store(nodes)
	feeds := make(map[gate.PodQuery]*podFeed)
	for query := range o.feed.needed.Load().queries {
		feed := &podFeed{running: o.feed.newRunning(podsName(query)), pods: newPodSet(o.feed.tellOf(gate.Aspect{Kind: gate.AspectPods, Pods: query}), o.feed.nodes, query.Annotation)}
		feed.live = true
		feeds[query] = feed
	}
	o.feed.podFeeds.Store(&feeds)
}

var fleet = []string{"n1", "n2", "n-3"}

func (o *oracle) draw(t *rapid.T) *corev1.Node {
	o.version++
	at := func(name string) metav1.Time {
		return metav1.NewTime(o.now.Add(-time.Duration(rapid.IntRange(0, 200).Draw(t, name)) * time.Second))
	}
	some := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, name) }
	n := testNode(some("node", fleet...), types.UID(some("uid", "u1", "u2", "0d0a7d2c-6f0f-4b7e-a1d6-1f3a7a1f9a11")))
	n.ResourceVersion, n.CreationTimestamp = strconv.Itoa(o.version), at("created")
	n.Labels = map[string]string{corev1.LabelHostname: n.Name, "pool": some("pool", "x", "y"), corev1.LabelTopologyZone: some("zone", "", "z")}
	n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: some("boot", "", "b1", "4c0e0d0a-6f0f-4b7e-a1d6-1f3a7a1f9a11"), KernelVersion: some("kernel", "", "6.1")}
	n.Status.Allocatable = corev1.ResourceList{"gpu": resource.MustParse(some("gpu", "0", "1", "1500m"))}
	n.Annotations = map[string]string{"warm": some("warm", "", "yes"), "of no interest": some("interest", "1", "2")}
	for _, g := range o.gates {
		o.stand(t, n, g, at("since"))
	}
	n.Status.Conditions = nil
	for _, c := range []string{"Ready", "Net"} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeConditionType(c), Status: corev1.ConditionStatus(some(c, "True", "False", "Unknown")), LastTransitionTime: at("transition"), LastHeartbeatTime: at("heartbeat"),
		})
	}
	return n
}

// stand has a gate's taint and record stand on a node, or not.
func (o *oracle) stand(t *rapid.T, n *corev1.Node, g gate.Gate, since metav1.Time) {
	r := gate.Record{
		State: rapid.SampledFrom([]string{"", v1alpha1.StateClosed, v1alpha1.StateOpen}).Draw(t, "state"),
		Since: since.Time, Reason: v1alpha1.ReasonBirth, Boot: n.Status.NodeInfo.BootID, Source: g.Source, Taint: gate.TaintText(g.Taint),
	}
	if r.State != "" {
		n.Annotations[v1alpha1.RecordAnnotationPrefix+g.Name] = r.String()
	}
	if rapid.Bool().Draw(t, "tainted") {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: g.Taint.Key, Effect: g.Taint.Effect})
	}
}

func (o *oracle) nodeChanges(t *rapid.T) {
	n := o.draw(t)
	o.nodes[n.Name] = n
	fact := o.feed.nodes.pack(n)
	o.feed.nodes.update(func() []nodeNews { return o.feed.nodes.put(fact) })
}

func (o *oracle) someNode(t *rapid.T) *corev1.Node {
	if len(o.nodes) == 0 {
		t.Skip("no node")
	}
	return o.nodes[rapid.SampledFrom(slices.Sorted(maps.Keys(o.nodes))).Draw(t, "node")]
}

func (o *oracle) nodeBeats(t *rapid.T) {
	n := o.someNode(t).DeepCopy()
	o.version++
	n.ResourceVersion = strconv.Itoa(o.version)
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(o.now)
	}
	o.nodes[n.Name] = n
	fact := o.feed.nodes.pack(n)
	o.feed.nodes.update(func() []nodeNews { return o.feed.nodes.put(fact) })
}

func (o *oracle) nodeGoes(t *rapid.T) {
	n := o.someNode(t)
	delete(o.nodes, n.Name)
	fact := o.feed.nodes.pack(n)
	o.feed.nodes.update(func() []nodeNews { return o.feed.nodes.drop(fact) })
}

// nodesAreRead has all nodes be read anew: some of what happened was not told.
func (o *oracle) nodesAreRead(t *rapid.T) {
	for range rapid.IntRange(0, 2).Draw(t, "unseen") {
		n := o.draw(t)
		o.nodes[n.Name] = n
	}
	var all []*packed.Node
	for _, n := range o.nodes {
		all = append(all, o.feed.nodes.pack(n))
	}
	o.feed.nodes.update(func() []nodeNews { return o.feed.nodes.replace(all) })
	o.told.nodes = append(o.told.nodes, fleet...) // who is told that all were read looks at all
}

// eachQuery hands out each query, and what the pod is to it.
func (o *oracle) eachQuery(p *corev1.Pod, do func(set *podSet, selected bool)) {
	for query, feed := range *o.feed.podFeeds.Load() {
		do(feed.pods, query.Selector == "app="+p.Labels["app"])
	}
}

func (o *oracle) podChanges(t *rapid.T) {
	app := rapid.SampledFrom([]string{"agent", "other"}).Draw(t, "app")
	name := fmt.Sprintf("%s-%d", app, rapid.IntRange(1, 4).Draw(t, "pod"))
	node := rapid.SampledFrom(fleet).Draw(t, "node")
	p := testPod(name, types.UID(rapid.SampledFrom([]string{"p1", "p2", "1d0a7d2c-6f0f-4b7e-a1d6-1f3a7a1f9a11"}).Draw(t, "uid")), node, rapid.Bool().Draw(t, "ready"))
	p.Labels = map[string]string{"app": app}
	p.CreationTimestamp = metav1.NewTime(o.now.Add(-time.Hour))
	p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID("uid-" + app), Controller: new(true)}}
	p.Status.ContainerStatuses[0].ContainerID = rapid.SampledFrom([]string{"c1", "c2"}).Draw(t, "container")
	if rapid.Bool().Draw(t, "terminating") {
		p.DeletionTimestamp = new(metav1.NewTime(o.now))
	}
	o.pods[name] = p
	o.eachQuery(p, func(set *podSet, selected bool) {
		if selected {
			set.put(set.convert(p))
		}
	})
}

func (o *oracle) podGoes(t *rapid.T) {
	if len(o.pods) == 0 {
		t.Skip("no pod")
	}
	p := o.pods[rapid.SampledFrom(slices.Sorted(maps.Keys(o.pods))).Draw(t, "pod")].DeepCopy()
	delete(o.pods, p.Name)
	if rapid.Bool().Draw(t, "elsewhere") {
		p.Spec.NodeName = "nowhere" // as the last that was told of it may be out of date
	}
	o.eachQuery(p, func(set *podSet, selected bool) {
		if selected {
			set.drop(set.convert(p))
		}
	})
}

func (o *oracle) podsAreRead(*rapid.T) {
	facts := make(map[*podSet][]podFact)
	for _, p := range o.pods {
		o.eachQuery(p, func(set *podSet, selected bool) {
			if selected {
				facts[set] = append(facts[set], set.convert(p))
			}
		})
	}
	for _, feed := range *o.feed.podFeeds.Load() {
		feed.pods.replace(facts[feed.pods])
	}
}

func (o *oracle) dictionariesTurn(*rapid.T) { o.feed.nodes.packer.Renew() }

// facts are those about all nodes, made of whole objects.
func (o *oracle) facts() map[string]gate.Facts {
	count := make(zones)
	for _, n := range o.nodes {
		count.move(nil, observed(o.feed.nodes.describe(n)))
	}
	all := make(map[string]gate.Facts, len(o.nodes))
	for name, n := range o.nodes {
		node := o.feed.nodes.describe(n)
		f := gate.Facts{
			Node: *node, Zone: count.of(node.Zone()), DaemonSets: o.feed.DaemonSets(), CompleteSources: map[string]bool{v1alpha1.SourceCRD: false},
			Pods: make(map[gate.PodQuery][]gate.Pod),
		}
		for query, feed := range *o.feed.podFeeds.Load() {
			f.Pods[query] = nil
			for _, key := range slices.Sorted(maps.Keys(o.pods)) {
				if p := o.pods[key]; p.Spec.NodeName == name && query.Selector == "app="+p.Labels["app"] {
					f.Pods[query] = append(f.Pods[query], feed.pods.describe(p))
				}
			}
		}
		all[name] = f
	}
	return all
}

func (o *oracle) compare(t *rapid.T, before, after map[string]gate.Facts) {
	told, _ := o.told.nodes, o.told.gates
	o.told.nodes = nil
	for _, name := range fleet {
		want, exists := after[name]
		got, known := o.feed.Facts(name)
		if known != exists {
			t.Fatalf("%s is known: %v, exists: %v", name, known, exists)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("what is kept of %s differs from what it is:\n%s", name, diff)
		}
		o.compareDecisions(t, want, got)
		old, existed := before[name]
		news := exists != existed || exists && o.news(&old, &want)
		if news && !slices.Contains(told, name) {
			t.Fatalf("%s has changed, and nobody was told:\n%s", name, cmp.Diff(old, want))
		}
	}
}

func (o *oracle) compareDecisions(t *rapid.T, want, got gate.Facts) {
	for _, f := range []*gate.Facts{&want, &got} {
		f.DaemonSets = &o.sets
		f.CSINode = gate.CSINode{Observed: true}
	}
	if a, b := gate.Decide(o.gates, &want, o.now), gate.Decide(o.gates, &got, o.now); !reflect.DeepEqual(a, b) {
		t.Fatalf("the decision about %s differs: %+v instead of %+v", want.Node.Name, b, a)
	}
}

// news tells whether a decision could be another.
func (o *oracle) news(old, now *gate.Facts) bool {
	return !sameFacts(&old.Node, &now.Node) || old.Zone.Partitioned() != now.Zone.Partitioned() && now.Node.Silent() ||
		o.feed.nodes.heartbeats && !sameHeartbeats(&old.Node, &now.Node) || !cmp.Equal(old.Pods, now.Pods)
}
