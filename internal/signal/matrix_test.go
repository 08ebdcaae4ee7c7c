// SPDX-License-Identifier: Apache-2.0

package signal

import (
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nodegate/nodegate/api/v1alpha1"
	"github.com/nodegate/nodegate/internal/gate"
)

// The situations in which every kind of signal is tested.
const (
	holds      = "holds"
	notYet     = "not yet"
	unknown    = "unknown"        // nodegate, or the reporter, does not know
	missingObj = "missing object" // the object that the signal names does not exist
	staleFact  = "stale"          // from before the boot, or too old
	wrongNode  = "wrong node"     // of another node, or of a former Node with the same name
	wrongOwner = "wrong owner"    // of another owner
)

var situations = []string{holds, notYet, unknown, missingObj, staleFact, wrongNode, wrongOwner}

// cell is the expected reading of a kind of signal in a situation, or the reason why
// the situation cannot occur.
type cell struct {
	node    *world
	state   gate.State
	reason  v1alpha1.ReadingReason
	message string
	never   string
}

func never(why string) cell { return cell{never: why} }

// row is an example of one kind of signal.
type row struct {
	signal v1alpha1.Signal
	cells  map[string]cell
}

const (
	ofThisNode = "it is a field of this Node"
	nobodyOwns = "parts of a Node have no owner"
	aLevel     = "it contains neither a time nor a boot, so it is always accepted (docs/known-limits.md)"
	alwaysSeen = "no decision is made about an unobserved Node"
)

// matrix specifies the reading of every kind of signal in every situation.
var matrix = map[string]row{
	"daemonSet": {
		v1alpha1.Signal{SignalSource: v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "agent"}}},
		map[string]cell{
			holds:      {node: aNode(with("agent"), running("agent")), state: gate.Holds, reason: ready, message: "kube-system/agent-x is ready"},
			notYet:     {node: aNode(with("agent"), running("agent", notReady)), state: gate.NotYet, reason: v1alpha1.ReadingPodNotReady, message: "pod kube-system/agent-x is not ready"},
			unknown:    {node: aNode(unobservedSets), state: gate.Unknown, reason: notObserved, message: "DaemonSet kube-system/agent is not observed yet"},
			missingObj: {node: aNode(), state: gate.NotYet, reason: v1alpha1.ReadingDaemonSetNotFound, message: "DaemonSet kube-system/agent does not exist: create it, or correct the gate"},
			staleFact:  {node: aNode(with("agent"), running("agent", olderThanNode), nodeCreated(time.Second)), state: gate.NotYet, reason: stale, message: "the evidence that pod kube-system/agent-x is ready predates the current boot or the current Node"},
			wrongNode:  {node: aNode(with("agent", onlyOn("cpu"))), state: gate.NotYet, reason: v1alpha1.ReadingDaemonSetNotEligible, message: "DaemonSet kube-system/agent does not run on this node: its node selector, affinity or tolerations exclude the node"},
			wrongOwner: {node: aNode(with("agent"), running("agent", ofAnotherOwner)), state: gate.NotYet, reason: missing, message: "kube-system/agent has no pod on this node"},
		},
	},
	"daemonSets": {
		v1alpha1.Signal{SignalSource: v1alpha1.SignalSource{DaemonSets: &v1alpha1.DaemonSetsSignal{Namespaces: []string{"kube-system"}}}},
		map[string]cell{
			holds:      {node: aNode(with("agent"), running("agent")), state: gate.Holds, reason: v1alpha1.ReadingDaemonsReady, message: "every selected DaemonSet that should run on this node has a ready pod here"},
			notYet:     {node: aNode(with("agent"), running("agent"), with("other")), state: gate.NotYet, reason: missing, message: "kube-system/other has no pod on this node"},
			unknown:    {node: aNode(unobservedSets), state: gate.Unknown, reason: notObserved, message: "namespace kube-system is not observed yet"},
			missingObj: {node: aNode(), state: gate.Holds, reason: v1alpha1.ReadingNoDaemonSetBelongs, message: "no selected DaemonSet should run on this node"},
			staleFact:  {node: aNode(with("agent"), running("agent", olderThanNode), nodeCreated(time.Second)), state: gate.NotYet, reason: stale, message: "the evidence that pod kube-system/agent-x is ready predates the current boot or the current Node"},
			wrongNode:  {node: aNode(with("agent", onlyOn("cpu"))), state: gate.Holds, reason: v1alpha1.ReadingNoDaemonSetBelongs, message: "no selected DaemonSet should run on this node"},
			wrongOwner: {node: aNode(with("agent"), running("agent", ofAnotherOwner)), state: gate.NotYet, reason: missing, message: "kube-system/agent has no pod on this node"},
		},
	},
	"pods": {
		v1alpha1.Signal{SignalSource: v1alpha1.SignalSource{Pods: anyPod}},
		map[string]cell{
			holds:      {node: aNode(running("agent")), state: gate.Holds, reason: ready, message: "kube-system/agent-x is ready"},
			notYet:     {node: aNode(running("agent", terminating)), state: gate.NotYet, reason: v1alpha1.ReadingPodTerminating, message: "pod kube-system/agent-x is terminating"},
			unknown:    {node: aNode(unobservedPods("agent")), state: gate.Unknown, reason: notObserved, message: "kube-system/(app=agent) is not observed yet"},
			missingObj: {node: aNode(), state: gate.NotYet, reason: missing, message: "kube-system/(app=agent) has no pod on this node"},
			staleFact:  {node: aNode(running("agent", olderThanNode), nodeCreated(time.Second)), state: gate.NotYet, reason: stale, message: "the evidence that pod kube-system/agent-x is ready predates the current boot or the current Node"},
			wrongNode:  never("facts contain only the pods of the node: see TestPods in internal/kube/feed"),
			wrongOwner: {node: aNode(running("agent", ofAnotherOwner)), state: gate.Holds, reason: ready, message: "kube-system/agent-x is ready"}, // their owner does not matter
		},
	},
	"completed": {
		v1alpha1.Signal{SignalSource: preflight(0)},
		map[string]cell{
			holds:      {node: ran(succeeded), state: gate.Holds, reason: v1alpha1.ReadingCompleted, message: "pod kube-system/agent-x has succeeded"},
			notYet:     {node: ran(failed), state: gate.NotYet, reason: v1alpha1.ReadingPodFailed, message: "pod kube-system/agent-x failed, and no other pod replaces it"},
			unknown:    {node: aNode(), state: gate.Unknown, reason: notObserved, message: "kube-system/(app=agent) is not observed yet"},
			missingObj: {node: neverRan(), state: gate.NotYet, reason: missing, message: "kube-system/(app=agent) has no pod on this node"},
			staleFact:  {node: ran(succeeded, inBoot("former")), state: gate.NotYet, reason: v1alpha1.ReadingStaleRun, message: "pod kube-system/agent-x finished, but before the current Node was created, or its label nodegate.dev/boot-id does not name the current boot (status.nodeInfo.bootID): run it again with this label"},
			wrongNode:  {node: ran(olderThanNode, ended(true, 2*time.Hour)), state: gate.NotYet, reason: v1alpha1.ReadingStaleRun, message: "pod kube-system/agent-x finished, but before the current Node was created, or its label nodegate.dev/boot-id does not name the current boot (status.nodeInfo.bootID): run it again with this label"},
			wrongOwner: {node: ran(succeeded, ofAnotherOwner), state: gate.Holds, reason: v1alpha1.ReadingCompleted, message: "pod kube-system/agent-x has succeeded"}, // their owner does not matter
		},
	},
	"condition": {
		v1alpha1.Signal{SignalSource: v1alpha1.SignalSource{Condition: &v1alpha1.ConditionSignal{Type: "Net", Status: "True", MaxHeartbeatAgeSeconds: new(int32(60))}}},
		map[string]cell{
			holds:      {node: conditions(beat("Net", "True", 0)), state: gate.Holds, reason: matches, message: "condition Net=True matches"},
			notYet:     {node: conditions(beat("Net", "False", 0)), state: gate.NotYet, reason: differs, message: "condition Net=False does not match"},
			unknown:    {node: conditions(beat("Net", "Unknown", 0)), state: gate.Unknown, reason: differs, message: "condition Net=Unknown does not match"},
			missingObj: {node: conditions(), state: gate.NotYet, reason: absent, message: "the node has no condition Net"},
			staleFact:  {node: conditions(beat("Net", "True", time.Hour)), state: gate.Unknown, reason: staleHeartbeat, message: "condition Net=True has no recent heartbeat from the current boot"},
			wrongNode:  never(ofThisNode),
			wrongOwner: never(nobodyOwns),
		},
	},
	"label": {
		v1alpha1.Signal{SignalSource: v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "pool", Value: new("gpu")}}},
		map[string]cell{
			holds:      {node: aNode(), state: gate.Holds, reason: matches, message: "label pool matches"},
			notYet:     {node: aNode(func(w *world) { w.facts.Node.Labels = map[string]string{"pool": "cpu"} }), state: gate.NotYet, reason: differs, message: "label pool does not match"},
			unknown:    never(alwaysSeen),
			missingObj: {node: aNode(func(w *world) { w.facts.Node.Labels = nil }), state: gate.NotYet, reason: absent, message: "the node has no label pool"},
			staleFact:  never(aLevel),
			wrongNode:  never(ofThisNode),
			wrongOwner: never(nobodyOwns),
		},
	},
	"annotation": {
		v1alpha1.Signal{SignalSource: v1alpha1.SignalSource{Annotation: &v1alpha1.KeyValueSignal{Key: "warm", Value: new("yes")}}},
		map[string]cell{
			holds:      {node: warmBy("yes"), state: gate.Holds, reason: matches, message: "annotation warm matches"},
			notYet:     {node: warmBy("no"), state: gate.NotYet, reason: differs, message: "annotation warm does not match"},
			unknown:    never("when a new key is needed, all Nodes are read again before any decision: see TestAnnotationsThatBecomeNeeded in internal/kube/feed"),
			missingObj: {node: aNode(), state: gate.NotYet, reason: absent, message: "the node has no annotation warm"},
			staleFact:  never(aLevel),
			wrongNode:  never(ofThisNode),
			wrongOwner: never(nobodyOwns),
		},
	},
	"csiDriver": {
		v1alpha1.Signal{SignalSource: v1alpha1.SignalSource{CSIDriver: &v1alpha1.CSIDriverSignal{Name: "ebs", Allocatable: true}}},
		map[string]cell{
			holds:      {node: csiNode("u", map[string]bool{"ebs": true}), state: gate.Holds, reason: matches, message: "CSI driver ebs matches"},
			notYet:     {node: csiNode("u", map[string]bool{"ebs": false}), state: gate.NotYet, reason: absent, message: "the node has no volume limit of CSI driver ebs"},
			unknown:    {node: aNode(), state: gate.Unknown, reason: notObserved, message: "CSI driver ebs is not observed yet"},
			missingObj: {node: csiNode("", nil), state: gate.NotYet, reason: absent, message: "the node has no CSI driver ebs"},
			staleFact:  never(aLevel),
			wrongNode:  {node: csiNode("former", map[string]bool{"ebs": true}), state: gate.NotYet, reason: v1alpha1.ReadingFormerNode, message: "CSI driver ebs belongs to a former Node of the same name"},
			wrongOwner: {node: csiNode("", map[string]bool{"ebs": true}), state: gate.NotYet, reason: v1alpha1.ReadingNotOwned, message: "the CSINode with CSI driver ebs is not owned by a Node, so it may belong to a former Node of the same name"},
		},
	},
	"resource": {
		v1alpha1.Signal{SignalSource: v1alpha1.SignalSource{Resource: &v1alpha1.ResourceSignal{Name: "gpu"}}},
		map[string]cell{
			holds:      {node: allocatable("gpu", "1"), state: gate.Holds, reason: matches, message: "resource gpu=1 matches"},
			notYet:     {node: allocatable("gpu", "0"), state: gate.NotYet, reason: v1alpha1.ReadingInsufficient, message: "resource gpu=0 is less than the gate requires"},
			unknown:    never("when a new resource is needed, all Nodes are read again before any decision: see TestResourcesThatBecomeNeeded in internal/kube/feed"),
			missingObj: {node: aNode(), state: gate.NotYet, reason: absent, message: "the node has no resource gpu"},
			staleFact:  never("a kubelet that starts reports 0 until the device plugin has registered again: that is 'not yet'"),
			wrongNode:  never(ofThisNode),
			wrongOwner: never(nobodyOwns),
		},
	},
	"resourceSlices": {
		v1alpha1.Signal{SignalSource: v1alpha1.SignalSource{ResourceSlices: &v1alpha1.ResourceSlicesSignal{Driver: draDriver}}},
		map[string]cell{
			holds:      {node: slicesOfU(part("a", "u", "p", 1, 1)), state: gate.Holds, reason: matches, message: "every pool of DRA driver " + draDriver + " matches"},
			notYet:     {node: slicesOfU(part("a", "u", "p", 1, 2)), state: gate.NotYet, reason: v1alpha1.ReadingPoolIncomplete, message: "pool p of DRA driver " + draDriver + ", with 1 of 2 ResourceSlices of generation 1, is incomplete"},
			unknown:    {node: aNode(), state: gate.Unknown, reason: notObserved, message: "ResourceSlice of DRA driver " + draDriver + " is not observed yet"},
			missingObj: {node: slicesOfU(), state: gate.NotYet, reason: absent, message: "the node has no ResourceSlice of DRA driver " + draDriver},
			staleFact:  {node: slicesOfU(part("a", "u", "p", 1, 1), part("b", "u", "p", 2, 2)), state: gate.NotYet, reason: v1alpha1.ReadingPoolIncomplete, message: "pool p of DRA driver " + draDriver + ", with 1 of 2 ResourceSlices of generation 2, is incomplete"},
			wrongNode:  {node: slicesOfU(part("a", "former", "p", 1, 1)), state: gate.NotYet, reason: v1alpha1.ReadingFormerNode, message: "ResourceSlice a belongs to a former Node of the same name"},
			wrongOwner: {node: slicesOfU(part("a", "", "p", 1, 1)), state: gate.NotYet, reason: v1alpha1.ReadingNotOwned, message: "ResourceSlice a is not owned by a Node, so it may belong to a former Node of the same name"},
		},
	},
	"object": {
		v1alpha1.Signal{SignalSource: ciliumNode},
		map[string]cell{
			holds:      {node: objects(gate.Object{Name: "n1", State: gate.Holds}), state: gate.Holds, reason: matches, message: "CiliumNode n1 matches"},
			notYet:     {node: objects(gate.Object{Name: "n1", State: gate.NotYet}), state: gate.NotYet, reason: differs, message: "CiliumNode n1 does not match"},
			unknown:    {node: objects(gate.Object{Name: "n1", Error: "no such key: status"}), state: gate.Unknown, reason: v1alpha1.ReadingExpressionFailed, message: "the expression could not be evaluated on this node: CiliumNode n1: no such key: status"},
			missingObj: {node: objects(), state: gate.NotYet, reason: absent, message: "the node has no CiliumNode.v2.cilium.io"},
			staleFact:  never(aLevel),
			wrongNode:  {node: objects(gate.Object{Name: "n1", State: gate.Holds, Owner: "former"}), state: gate.NotYet, reason: v1alpha1.ReadingFormerNode, message: "CiliumNode n1 belongs to a former Node of the same name"},
			wrongOwner: {node: objects(gate.Object{Name: "n1", State: gate.Holds, Owner: "u"}), state: gate.Holds, reason: matches, message: "CiliumNode n1 matches"}, // an owner is not required
		},
	},
	"expression": {
		v1alpha1.Signal{SignalSource: expressed(`labels.pool == "gpu" && !taints.exists(t, t.key == "cordon")`)},
		map[string]cell{
			holds:      {node: aNode(), state: gate.Holds, reason: matches, message: "the expression matches"},
			notYet:     {node: aNode(tainted("cordon", corev1.TaintEffectNoSchedule)), state: gate.NotYet, reason: differs, message: "the expression does not match"},
			unknown:    {node: aNode(func(w *world) { w.facts.Node.Labels = nil }), state: gate.Unknown, reason: v1alpha1.ReadingExpressionFailed, message: "the expression could not be evaluated on this node: no such key: pool"},
			missingObj: never("it names no object: reading a missing value is 'unknown'"),
			staleFact:  never(aLevel),
			wrongNode:  never(ofThisNode),
			wrongOwner: never(nobodyOwns),
		},
	},
	"anyOf": {
		v1alpha1.Signal{AnyOf: []v1alpha1.NamedSource{
			{Name: "warm", SignalSource: v1alpha1.SignalSource{Label: &v1alpha1.KeyValueSignal{Key: "warm"}}},
			{Name: "agent", SignalSource: v1alpha1.SignalSource{DaemonSet: &v1alpha1.DaemonSetSignal{Namespace: "kube-system", Name: "agent"}}},
		}},
		map[string]cell{
			holds:      {node: aNode(warm, unobservedSets), state: gate.Holds, reason: matches, message: "label warm matches"},
			notYet:     {node: aNode(with("agent"), running("agent", notReady)), state: gate.NotYet, reason: none, message: noneOf("pod kube-system/agent-x is not ready")},
			unknown:    {node: aNode(unobservedSets), state: gate.Unknown, reason: none, message: noneOf("DaemonSet kube-system/agent is not observed yet")},
			missingObj: {node: aNode(), state: gate.NotYet, reason: none, message: noneOf("DaemonSet kube-system/agent does not exist: create it, or correct the gate")},
			staleFact:  {node: aNode(with("agent"), running("agent", olderThanNode), nodeCreated(time.Second)), state: gate.NotYet, reason: none, message: noneOf("the evidence that pod kube-system/agent-x is ready predates the current boot or the current Node")},
			wrongNode:  {node: aNode(with("agent", onlyOn("cpu"))), state: gate.NotYet, reason: none, message: noneOf("DaemonSet kube-system/agent does not run on this node: its node selector, affinity or tolerations exclude the node")},
			wrongOwner: {node: aNode(with("agent"), running("agent", ofAnotherOwner)), state: gate.NotYet, reason: none, message: noneOf("kube-system/agent has no pod on this node")},
		},
	},
}

const none = v1alpha1.ReadingNoneHolds

func noneOf(agent string) string {
	return "no alternative holds: warm: the node has no label warm; agent: " + agent
}

func warmBy(value string) *world {
	return aNode(func(w *world) { w.facts.Node.Annotations = map[string]string{"warm": value} })
}

// kinds returns the names of all kinds of signals in the API.
func kinds() []string {
	found := []string{"anyOf"}
	of := reflect.TypeFor[v1alpha1.SignalSource]()
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
		found = append(found, name)
	}
	return found
}

func TestEveryKindInEverySituation(t *testing.T) {
	for kind := range matrix {
		if !slices.Contains(kinds(), kind) {
			t.Errorf("the API has no signal %s", kind)
		}
	}
	for _, kind := range kinds() {
		r, ok := matrix[kind]
		if !ok {
			t.Errorf("signal %s has no row", kind)
			continue
		}
		s, err := compileSignal(&r.signal)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		if len(r.cells) != len(situations) {
			t.Errorf("%s: %d cells for %d situations", kind, len(r.cells), len(situations))
		}
		for _, situation := range situations {
			t.Run(kind+"/"+situation, func(t *testing.T) { checkCell(t, s, r.cells[situation], situation) })
		}
	}
}

func checkCell(t *testing.T, s gate.Signal, c cell, situation string) {
	t.Helper()
	if (c.never != "") == (c.node != nil) {
		t.Fatal("a cell must have either a node or a reason")
	}
	if c.never != "" {
		return
	}
	r, d := read(t, s, c.node)
	if r.State != c.state || r.Reason != c.reason || r.Message() != c.message {
		t.Errorf("got %s %s %q\nwant %s %s %q", r.State, r.Reason, r.Message(), c.state, c.reason, c.message)
	}
	if d.Verdicts[0].Opened() != (c.state == gate.Holds) {
		t.Errorf("the gate opens: %v", d.Verdicts[0].Opened())
	}
	want := map[string]gate.State{holds: gate.Holds, notYet: gate.NotYet, unknown: gate.Unknown}
	if state, fixed := want[situation]; fixed && c.state != state {
		t.Errorf("the cell expects %s", c.state)
	}
}

// Among several hundred DaemonSets, the one that is not ready determines the result and
// is reported.
func TestHundredsOfDaemonSets(t *testing.T) {
	s, w := hundreds(t, 300)
	if r, d := read(t, s, w); r.State != gate.Holds || !d.Verdicts[0].Opened() {
		t.Fatalf("%s: %s", r.State, r.Message())
	}
	if n := s.Needs(&w.sets); len(n.Pods) != 300 || len(n.DaemonSetNamespaces) != 1 {
		t.Errorf("needs %d queries", len(n.Pods))
	}
	w.facts.Pods[query("d123")][0].Ready = false
	if r, _ := read(t, s, w); r.State != gate.NotYet || r.Subject != "kube-system/d123-x" {
		t.Errorf("%s: %s", r.State, r.Message())
	}
}

func hundreds(t testing.TB, n int) (gate.Signal, *world) {
	t.Helper()
	s, err := newDaemonSets(&v1alpha1.DaemonSetsSignal{Namespaces: []string{"kube-system"}})
	if err != nil {
		t.Fatal(err)
	}
	w := aNode()
	for i := range n {
		name := "d" + strconv.Itoa(100+i)
		with(name)(w)
		running(name)(w)
	}
	return s, w
}

func BenchmarkHundredsOfDaemonSets(b *testing.B) {
	s, w := hundreds(b, 300)
	g := aClosedGate(s, gate.Record{Boot: "a"}, w)
	b.ReportAllocs()
	for b.Loop() {
		if d := gate.Decide([]gate.Gate{g}, &w.facts, epoch); !d.Changes {
			b.Fatal("it does not open")
		}
	}
}
