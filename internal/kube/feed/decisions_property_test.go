// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
	"github.com/nodegate/nodegate/internal/kube/kubetest"
	"github.com/nodegate/nodegate/internal/kube/nodestore"
	"github.com/nodegate/nodegate/internal/kube/packed"
	signals "github.com/nodegate/nodegate/internal/signal"
)

// oracle keeps a fleet as whole objects, beside a feed that receives all their changes.
type oracle struct {
	feed    *Feed
	sink    nodestore.Sink
	handler *recorder
	gates   []gate.Gate
	now     time.Time

	// heartbeats is true if a gate needs them.
	heartbeats bool
	version    int
	nodes      map[string]*corev1.Node
	pods       map[string]*corev1.Pod
	sets       gate.DaemonSets
}

// Decisions based on the stored facts equal those based on whole objects, and every
// change that matters for a decision is announced.
func TestDecisionsAreThoseOfWholeObjects(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := newOracle(t)
		before := o.facts()
		t.Repeat(map[string]func(*rapid.T){
			"node changes":       o.nodeChanged,
			"heartbeat":          o.heartbeat,
			"node is deleted":    o.nodeDeleted,
			"nodes are listed":   o.nodesRelisted,
			"pod changes":        o.podChanged,
			"pod is deleted":     o.podDeleted,
			"pods are listed":    o.podsRelisted,
			"time passes":        func(*rapid.T) { o.now = o.now.Add(time.Minute) },
			"dictionary renewed": o.dictionaryRenewed,
			"": func(t *rapid.T) {
				after := o.facts()
				o.compare(t, before, after)
				before = after
			},
		})
	})
}

// everySignal contains a signal of each kind.
var everySignal = []v1alpha1.SignalSource{
	{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "ns", Name: "agent", MinReadySeconds: 30}},
	{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"ns"}}},
	{Pods: &v1alpha1.PodsSignal{Namespace: "ns", Selector: v1alpha1.LabelSelector{MatchLabels: map[string]string{"app": "agent"}}}},
	{Condition: &v1alpha1.ConditionSignal{Type: "Net", Status: "True", ForSeconds: 60, MaxHeartbeatAgeSeconds: new(int32(90))}},
	{Label: &v1alpha1.KeyValueSignal{Key: "pool", Value: new("x")}},
	{Annotation: &v1alpha1.KeyValueSignal{Key: "warm"}},
	{CSIDriver: &v1alpha1.CSIDriverSignal{Name: "csi"}},
	{Resource: &v1alpha1.ResourceSignal{Name: "gpu", AtLeast: new(resource.MustParse("1"))}},
	{ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: draDriver}},
	{Expression: `labels.pool == "x" && nodeInfo.kernelVersion.startsWith("6") && !taints.exists(t, t.key == "cordon")`},
}

func newOracle(t *rapid.T) *oracle {
	o := &oracle{handler: &recorder{}, now: time.Unix(1_800_000_000, 0).UTC(), nodes: map[string]*corev1.Node{}, pods: map[string]*corev1.Pod{}}
	o.sets = gate.DaemonSets{Observed: map[string]bool{"ns": true}}
	for _, name := range []string{"agent", "other"} {
		ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
		ds.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
		ds.Spec.Template.Labels = ds.Spec.Selector.MatchLabels
		o.sets.Items = append(o.sets.Items, NewDaemonSet(ds).DaemonSet)
	}
	var needs gate.Needs
	for i, source := range everySignal {
		if !rapid.Bool().Draw(t, "gate") {
			continue
		}
		g := o.newGate(t, i, source)
		needs.Add(g.Needs(&o.sets))
		o.gates = append(o.gates, g)
	}
	o.begin(needs)
	return o
}

func (o *oracle) newGate(t *rapid.T, i int, source v1alpha1.SignalSource) gate.Gate {
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

// begin makes the feed observe what is needed, as if it had read everything.
func (o *oracle) begin(needs gate.Needs) {
	o.feed = newFeed(newFakeAPI().sources(), Options{Handler: o.handler})
	o.feed.SetNeeds(needs)
	o.heartbeats = needs.Heartbeats
	o.sink = o.feed.nodes.Sink(o.feed.nodes.NeededVersion())
	o.sink.Replace(nil)
	nodes := &nodeFeed{running: o.feed.newRunning(nodesName)}
	setLive(nodes.running)
	o.feed.nodeFeed.Store(nodes)
	feeds := make(map[gate.PodQuery]*podFeed)
	for query := range o.feed.needed.Load().Queries {
		feed := &podFeed{running: o.feed.newRunning(PodsName(query)), pods: NewPods(o.feed.notifier(gate.Aspect{Kind: gate.AspectPods, Pods: query}), o.feed.nodes, query)}
		setLive(feed.running)
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
	n := kubetest.Node(some("node", fleet...), types.UID(some("uid", "u1", "u2", "0d0a7d2c-6f0f-4b7e-a1d6-1f3a7a1f9a11")))
	n.ResourceVersion, n.CreationTimestamp = strconv.Itoa(o.version), at("created")
	n.Labels = map[string]string{corev1.LabelHostname: n.Name, "pool": some("pool", "x", "y"), corev1.LabelTopologyZone: some("zone", "", "z")}
	n.Status.NodeInfo = corev1.NodeSystemInfo{BootID: some("boot", "", "b1", "4c0e0d0a-6f0f-4b7e-a1d6-1f3a7a1f9a11"), KernelVersion: some("kernel", "", "6.1")}
	n.Status.Allocatable = corev1.ResourceList{"gpu": resource.MustParse(some("gpu", "0", "1", "1500m", "1e201"))}
	n.Annotations = map[string]string{"warm": some("warm", "", "yes"), "irrelevant": some("irrelevant", "1", "2")}
	for _, g := range o.gates {
		o.setGateState(t, n, g, at("since"))
	}
	n.Status.Conditions = nil
	for _, c := range []string{"Ready", "Net"} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeConditionType(c), Status: corev1.ConditionStatus(some(c, "True", "False", "Unknown")), LastTransitionTime: at("transition"), LastHeartbeatTime: at("heartbeat"),
		})
	}
	return n
}

// setGateState draws a gate's taint and record on a node.
func (o *oracle) setGateState(t *rapid.T, n *corev1.Node, g gate.Gate, since metav1.Time) {
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

func (o *oracle) nodeChanged(t *rapid.T) {
	n := o.draw(t)
	o.nodes[n.Name] = n
	o.sink.Put(o.feed.nodes.Pack(n))
}

func (o *oracle) someNode(t *rapid.T) *corev1.Node {
	if len(o.nodes) == 0 {
		t.Skip("no node")
	}
	return o.nodes[rapid.SampledFrom(slices.Sorted(maps.Keys(o.nodes))).Draw(t, "node")]
}

func (o *oracle) heartbeat(t *rapid.T) {
	n := o.someNode(t).DeepCopy()
	o.version++
	n.ResourceVersion = strconv.Itoa(o.version)
	for i := range n.Status.Conditions {
		n.Status.Conditions[i].LastHeartbeatTime = metav1.NewTime(o.now)
	}
	o.nodes[n.Name] = n
	o.sink.Put(o.feed.nodes.Pack(n))
}

func (o *oracle) nodeDeleted(t *rapid.T) {
	n := o.someNode(t)
	delete(o.nodes, n.Name)
	o.sink.Drop(o.feed.nodes.Pack(n))
}

// nodesRelisted lists all nodes again. Some changes were not delivered by the watch.
func (o *oracle) nodesRelisted(t *rapid.T) {
	for range rapid.IntRange(0, 2).Draw(t, "unseen") {
		n := o.draw(t)
		o.nodes[n.Name] = n
	}
	var all []*packed.Node
	for _, n := range o.nodes {
		all = append(all, o.feed.nodes.Pack(n))
	}
	o.sink.Replace(all)
	o.handler.nodes = append(o.handler.nodes, fleet...) // a completed list makes all nodes be evaluated
}

// eachQuery calls do for each query, with whether it selects the pod.
func (o *oracle) eachQuery(p *corev1.Pod, do func(set *Pods, selected bool)) {
	for query, feed := range *o.feed.podFeeds.Load() {
		do(feed.pods, query.Selector == "app="+p.Labels["app"])
	}
}

func (o *oracle) podChanged(t *rapid.T) {
	app := rapid.SampledFrom([]string{"agent", "other"}).Draw(t, "app")
	name := fmt.Sprintf("%s-%d", app, rapid.IntRange(1, 4).Draw(t, "pod"))
	node := rapid.SampledFrom(fleet).Draw(t, "node")
	p := kubetest.Pod(name, types.UID(rapid.SampledFrom([]string{"p1", "p2", "1d0a7d2c-6f0f-4b7e-a1d6-1f3a7a1f9a11"}).Draw(t, "uid")), node, rapid.Bool().Draw(t, "ready"))
	p.Labels = map[string]string{"app": app}
	p.CreationTimestamp = metav1.NewTime(o.now.Add(-time.Hour))
	p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID("uid-" + app), Controller: new(true)}}
	p.Status.ContainerStatuses[0].ContainerID = rapid.SampledFrom([]string{"c1", "c2"}).Draw(t, "container")
	if rapid.Bool().Draw(t, "terminating") {
		p.DeletionTimestamp = new(metav1.NewTime(o.now))
	}
	o.pods[name] = p
	o.eachQuery(p, func(set *Pods, selected bool) {
		if selected {
			set.Put(set.Convert(p))
		}
	})
}

func (o *oracle) podDeleted(t *rapid.T) {
	if len(o.pods) == 0 {
		t.Skip("no pod")
	}
	p := o.pods[rapid.SampledFrom(slices.Sorted(maps.Keys(o.pods))).Draw(t, "pod")].DeepCopy()
	delete(o.pods, p.Name)
	if rapid.Bool().Draw(t, "elsewhere") {
		p.Spec.NodeName = "nowhere" // the last event may be outdated
	}
	o.eachQuery(p, func(set *Pods, selected bool) {
		if selected {
			set.Drop(set.Convert(p))
		}
	})
}

func (o *oracle) podsRelisted(*rapid.T) {
	facts := make(map[*Pods][]Pod)
	for _, p := range o.pods {
		o.eachQuery(p, func(set *Pods, selected bool) {
			if selected {
				facts[set] = append(facts[set], set.Convert(p))
			}
		})
	}
	for _, feed := range *o.feed.podFeeds.Load() {
		feed.pods.Replace(facts[feed.pods])
	}
}

func (o *oracle) dictionaryRenewed(*rapid.T) { o.feed.nodes.Packer.Renew() }

// facts returns the facts about all nodes, derived from whole objects.
func (o *oracle) facts() map[string]gate.Facts {
	count := make(nodestore.Zones)
	for _, n := range o.nodes {
		count.Count(o.feed.nodes.Convert(n))
	}
	all := make(map[string]gate.Facts, len(o.nodes))
	for name, n := range o.nodes {
		node := o.feed.nodes.Convert(n)
		f := gate.Facts{
			Node: *node, Zone: count.Of(node.Zone()), DaemonSets: o.feed.DaemonSets(), CompleteSources: map[string]bool{v1alpha1.SourceCRD: false},
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
	changed, _ := o.handler.nodes, o.handler.gates
	o.handler.nodes = nil
	for _, name := range fleet {
		want, exists := after[name]
		got, known := o.feed.Facts(name)
		if known != exists {
			t.Fatalf("%s: known %v, exists %v", name, known, exists)
		}
		got.Boot, got.SilentSince, got.ReadySince, got.PodsAt, got.Loading = gate.Boot{}, time.Time{}, time.Time{}, time.Time{}, false // these do not follow from the state of the objects
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("stored facts about %s differ:\n%s", name, diff)
		}
		o.compareDecisions(t, want, got)
		old, existed := before[name]
		relevant := exists != existed || exists && o.isRelevant(&old, &want)
		if relevant && !slices.Contains(changed, name) {
			t.Fatalf("%s has changed, which was not announced:\n%s", name, cmp.Diff(old, want))
		}
	}
}

func (o *oracle) compareDecisions(t *rapid.T, want, got gate.Facts) {
	for _, f := range []*gate.Facts{&want, &got} {
		f.DaemonSets = &o.sets
		f.CSINode = gate.CSINode{Observed: true}
	}
	if a, b := gate.Decide(o.gates, &want, o.now), gate.Decide(o.gates, &got, o.now); !reflect.DeepEqual(a, b) {
		t.Fatalf("the decision about %s is %+v, want %+v", want.Node.Name, b, a)
	}
}

// asDecided compares Nodes without what only patches use; withoutHeartbeats ignores what only
// some gates need.
var (
	asDecided         = cmp.Options{cmpopts.IgnoreFields(gate.Node{}, "ResourceVersion", "RawBootID", "HasAnnotations"), cmpopts.EquateEmpty()}
	withoutHeartbeats = cmpopts.IgnoreFields(gate.Condition{}, "Heartbeat")
)

// isRelevant reports whether the difference may affect a decision.
func (o *oracle) isRelevant(old, now *gate.Facts) bool {
	return !cmp.Equal(old.Node, now.Node, asDecided, withoutHeartbeats) || old.Zone.Partitioned() != now.Zone.Partitioned() && now.Node.Silent() ||
		o.heartbeats && !cmp.Equal(old.Node, now.Node, asDecided) || !cmp.Equal(old.Pods, now.Pods)
}
